import{a,b}from"./chunk-NX3WVI5F.js";import"./chunk-6L6DOVWD.js";import"./chunk-QIFI7RNQ.js";import"./chunk-43BXM3PU.js";import"./chunk-HH7AX6XE.js";export{b as Hearing,a as INPUT};
