-- style.lua - how the page looks: one column, light or dark as the reader's screen is, tables
-- that scroll by themselves where it is narrow, black on white on paper.
return [[
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2024;--soft:#5a6570;--rule:#e1e5ea;--wash:#f5f7f9;
--link:#1f5fae;--good:#1a7f4b;--goodwash:#e8f5ee;--bad:#b3261e;--badwash:#fcebea;--warn:#8a5a00;--warnwash:#fff5dc;
--empty:#eceef1;--k0:#3f72b8;--k1:#2f9d91;--k2:#c9a227;--k3:#8461b3;--k4:#d0743c;--k5:#68a5e4;--k6:#b0457a;--k7:#7c8894;
--idle:#d9dde2;--comment:#6b7681;--string:#1d6f42;--number:#8a4b08;--word:#7c3aa0}
@media screen and (prefers-color-scheme:dark){:root{--paper:#15181c;--ink:#e4e8ec;--soft:#9aa6b2;--rule:#2d333a;
--wash:#1c2025;--link:#7fb2f0;--good:#63c491;--goodwash:#16291f;--bad:#f28b82;--badwash:#33191a;--warn:#e5b454;
--warnwash:#2e2614;--empty:#2a2f36;--k0:#5b8fd6;--k1:#3fb3a6;--k2:#d4b03c;--k3:#a384d0;--k4:#dd8a55;--k5:#86baf0;
--k6:#cc6a98;--k7:#8b97a3;--idle:#3a414a;--comment:#87929e;--string:#7cc79b;--number:#e0a766;--word:#c49be8}}
*{box-sizing:border-box}html{scroll-behavior:smooth;scroll-padding-top:1rem;-webkit-text-size-adjust:100%}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;
overflow-wrap:break-word}
header,main,footer,nav{max-width:78rem;margin:0 auto;padding:0 clamp(1rem,4vw,2.5rem)}
header{padding-top:2.5rem}h1{font-size:clamp(1.5rem,4.5vw,2.1rem);line-height:1.2;margin:0;letter-spacing:-.015em;overflow-wrap:anywhere}
.eyebrow{margin:0 0 .35rem;color:var(--soft);font-size:.875rem;overflow-wrap:anywhere}
.verdict{display:inline-block;margin:1rem 0 0;padding:.4rem .8rem;border-radius:.4rem;font-weight:600;border-left:4px solid}
.fits{color:var(--good);background:var(--goodwash)}.tight{color:var(--warn);background:var(--warnwash)}.too_large,.wrong,.refused{color:var(--bad);background:var(--badwash)}
nav{padding-top:1.5rem}nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:0;padding:0 0 .75rem;list-style:none;
border-bottom:1px solid var(--rule);font-size:.9375rem}
a{color:var(--link);text-underline-offset:.15em}nav a{text-decoration:none}nav a:hover{text-decoration:underline}
:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:2px}
.skip{position:absolute;left:-999rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.25rem .5rem}
section{padding-top:2.25rem}h2{font-size:1.25rem;margin:0 0 .6rem;letter-spacing:-.005em}
h3{font-size:1rem;margin:1.5rem 0 .4rem}p{margin:.4rem 0;max-width:44rem}.note{color:var(--soft);font-size:.9375rem}
.figures{display:grid;grid-template-columns:repeat(5,1fr);margin:1.5rem 0 0;padding:0;border:1px solid var(--rule);
border-radius:.5rem;overflow:hidden}.figures div{padding:.75rem .9rem;box-shadow:1px 1px 0 0 var(--rule)}.figures dt{color:var(--soft);font-size:.8125rem}
.figures dd{margin:.1rem 0 0;font-size:1.2rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}
.figures small{display:block;font-size:.8125rem;font-weight:400;color:var(--soft)}
.scroll{overflow-x:auto;margin:.75rem 0;max-width:100%}table{border-collapse:collapse;font-size:.9375rem;font-variant-numeric:tabular-nums;min-width:100%}
caption{text-align:left;color:var(--soft);font-size:.875rem;padding-bottom:.35rem;white-space:nowrap}
th,td{padding:.3rem .7rem;text-align:left;border-bottom:1px solid var(--rule);vertical-align:middle}
thead th,thead .n{font-weight:600;white-space:normal;line-height:1.25;font-size:.8125rem;color:var(--soft);vertical-align:bottom;border-bottom-color:var(--soft)}
tbody th{font-weight:500}th:first-child,td:first-child{padding-left:.2rem}.n{text-align:right;white-space:nowrap}
.w{white-space:nowrap}.most th,.most td{background:var(--wash);font-weight:600}tbody tr:hover td,tbody tr:hover th{background:var(--wash)}
.wide{min-width:11rem;width:38%}.bar{position:relative;display:flex;height:.95rem;background:var(--empty);border-radius:2px;min-width:9rem}
.bar i{display:block;height:100%;flex:none}.bar b{position:absolute;top:-3px;bottom:-3px;width:2px;margin-left:-1px;background:var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;list-style:none;margin:.5rem 0;padding:0;font-size:.875rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.4rem;vertical-align:-1px}
.k0{background:var(--k0)}.k1{background:var(--k1)}.k2{background:var(--k2)}.k3{background:var(--k3)}.k4{background:var(--k4)}
.k5{background:var(--k5)}.k6{background:var(--k6)}.k7{background:var(--k7)}.idle{background:var(--idle)}
.reasons{list-style:none;margin:.5rem 0;padding:0}.reasons li{margin:.4rem 0;padding:.5rem .8rem;border-left-style:solid;border-left-width:4px;border-radius:.25rem}
.reasons li>*{color:var(--ink)}.reasons a{color:var(--link)}.error{border-color:var(--bad);background:var(--badwash)}
.warning{border-color:var(--warn);background:var(--warnwash)}.reasons strong{margin-right:.4rem}code{font:.9em ui-monospace,"DejaVu Sans Mono",Menlo,monospace}
.picture svg{display:block;width:100%;min-width:46rem;height:auto}.picture .tl .g{fill:none}
.source{border:1px solid var(--rule);border-radius:.5rem;background:var(--wash)}pre{margin:0;padding:.75rem 0;font:13px/1.6 ui-monospace,"DejaVu Sans Mono",Menlo,monospace;
tab-size:8;width:max-content;min-width:100%}pre>span{display:block;padding-right:1rem}
pre>span::before{content:attr(data-n);display:inline-block;width:3.2rem;margin-right:1rem;text-align:right;color:var(--soft);user-select:none}
pre .error,pre .warning{border-left-style:solid;border-left-width:4px}pre .error::before,pre .warning::before{width:calc(3.2rem - 4px)}
pre>span:target{background:var(--warnwash)}.hc{color:var(--comment)}.hs{color:var(--string)}.hn{color:var(--number)}.hw{color:var(--word)}
footer{margin-top:3rem;padding-top:1rem;padding-bottom:2.5rem;color:var(--soft);font-size:.875rem}footer p{border-top:1px solid var(--rule);padding-top:1rem;max-width:none}
@media (max-width:72rem){th,td{padding:.3rem .4rem}.wide{min-width:8rem;width:20%}.bar{min-width:7rem}}
@media (max-width:60rem){.figures{grid-template-columns:repeat(3,1fr)}}
@media (max-width:40rem){header{padding-top:1.5rem}table{font-size:.875rem}th,td{padding:.3rem .5rem}.figures{grid-template-columns:repeat(2,1fr)}
caption{white-space:normal;max-width:calc(100vw - 2rem)}
.figures dd{font-size:1.05rem}}
@media print{@page{margin:14mm}body{font-size:10.5pt}nav,.skip{display:none}header,main,footer{max-width:none;padding-left:0;padding-right:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}section{padding-top:1.2rem}h2,caption{break-after:avoid}tr,.figures,.reasons li{break-inside:avoid}
.scroll{overflow:visible}table{font-size:8.5pt}th,td{padding:.15rem .4rem}.wide{min-width:0;width:24%}.bar{min-width:4rem}
.picture{break-inside:avoid}.picture svg{min-width:0}pre{width:auto;white-space:pre-wrap;font-size:8pt}a{color:inherit;text-decoration:none}}
]]
