import{a,b}from"./chunk-5ZASD24T.js";import"./chunk-DOZXIENN.js";import"./chunk-K5LPFWBY.js";import"./chunk-XUUN7EBT.js";export{a as StepSession,b as Tail};
