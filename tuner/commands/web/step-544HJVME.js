import{a,b}from"./chunk-ELV2H4AK.js";import"./chunk-DSAIW47W.js";import"./chunk-43BXM3PU.js";import"./chunk-TKGNF3EG.js";import"./chunk-HH7AX6XE.js";export{a as StepSession,b as Tail};
