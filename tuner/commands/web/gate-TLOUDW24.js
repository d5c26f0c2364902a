import{a,b,c,d,e,f,g,h}from"./chunk-6ZP4G5OA.js";export{a as RULES,f as harm,c as isDecided,d as judgeCheck,e as judgeEarlier,b as judgeSamples,g as leastDrop,h as normalQuantile};
