import{a}from"./chunk-H47WV57Y.js";import"./chunk-X4SX4VHV.js";import"./chunk-LRBSJZ2S.js";import"./chunk-BLYF23B6.js";import"./chunk-HH7AX6XE.js";export{a as openTrainer};
