import{a,b}from"./chunk-W32UBMRU.js";import"./chunk-43BXM3PU.js";import"./chunk-PH6BR6NV.js";import"./chunk-HH7AX6XE.js";export{a as StepSession,b as Tail};
