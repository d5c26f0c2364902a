import{b as a}from"./chunk-GGOJFZ6S.js";import"./chunk-TIBK3HJF.js";import"./chunk-65ISLQZQ.js";import"./chunk-XUUN7EBT.js";export{a as openTrainer};
