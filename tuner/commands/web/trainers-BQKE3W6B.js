import{b as a}from"./chunk-DRHSWQGI.js";import"./chunk-H5TAQTFK.js";import"./chunk-VLEMLEMP.js";import"./chunk-MYB4B6YZ.js";export{a as openTrainer};
