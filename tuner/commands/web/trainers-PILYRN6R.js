import{a}from"./chunk-FOVFX5G3.js";import"./chunk-TYG53ATE.js";import"./chunk-S7BG7UV3.js";import"./chunk-BLYF23B6.js";import"./chunk-HH7AX6XE.js";export{a as openTrainer};
