import{a,b}from"./chunk-H2TRXYI6.js";import"./chunk-B3P5Z53E.js";import"./chunk-4WJTSNLP.js";import"./chunk-CITIPGTA.js";import"./chunk-UUZLOMW4.js";export{b as SteppingTrainer,a as rateOf};
