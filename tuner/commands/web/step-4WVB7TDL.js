import{a,b}from"./chunk-ATTR7THY.js";import"./chunk-OUIJBMXR.js";import"./chunk-HSLY2FFH.js";import"./chunk-MYB4B6YZ.js";export{a as StepSession,b as Tail};
