import{a}from"./chunk-LRGCPHXL.js";import"./chunk-IAMEGWPG.js";import"./chunk-5YRBC7XU.js";import"./chunk-BLYF23B6.js";import"./chunk-HH7AX6XE.js";export{a as openTrainer};
