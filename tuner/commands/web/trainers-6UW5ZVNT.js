import{b as a}from"./chunk-5VAZB25S.js";import"./chunk-ZQUEW3QH.js";import"./chunk-65ISLQZQ.js";import"./chunk-XUUN7EBT.js";export{a as openTrainer};
