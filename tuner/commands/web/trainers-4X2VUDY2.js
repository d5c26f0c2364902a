import{b as a}from"./chunk-QRLWVDQZ.js";import"./chunk-TIBK3HJF.js";import"./chunk-65ISLQZQ.js";import"./chunk-XUUN7EBT.js";export{a as openTrainer};
