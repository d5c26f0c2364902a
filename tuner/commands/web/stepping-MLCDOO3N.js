import{a,b}from"./chunk-ZDBLO2HI.js";import"./chunk-R5VGJJPV.js";import"./chunk-4WJTSNLP.js";import"./chunk-CITIPGTA.js";import"./chunk-UUZLOMW4.js";export{b as SteppingTrainer,a as rateOf};
