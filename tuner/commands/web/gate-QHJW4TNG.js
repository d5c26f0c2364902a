import{a,b,c,d,e,f,g,h}from"./chunk-L6UCM6LY.js";export{a as RULES,f as harm,c as isDecided,d as judgeCheck,e as judgeEarlier,b as judgeSamples,g as leastDrop,h as normalQuantile};
