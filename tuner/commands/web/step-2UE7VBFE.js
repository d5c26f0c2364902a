import{a,b}from"./chunk-QAKGUZBZ.js";import"./chunk-ZK3RR7M2.js";import"./chunk-MYB4B6YZ.js";export{a as StepSession,b as Tail};
