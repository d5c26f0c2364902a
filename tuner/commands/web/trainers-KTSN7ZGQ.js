import{b as a}from"./chunk-GGBMMVOH.js";import"./chunk-DVMISYLT.js";import"./chunk-BLYF23B6.js";import"./chunk-HH7AX6XE.js";export{a as openTrainer};
