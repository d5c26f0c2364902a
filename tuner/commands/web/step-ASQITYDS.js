import{a,b}from"./chunk-4WJTSNLP.js";import"./chunk-CITIPGTA.js";import"./chunk-UUZLOMW4.js";export{a as StepSession,b as Tail};
