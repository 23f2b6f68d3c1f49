// Puts the page together: facts, main figures, and a section for what the report has.
"use strict";

function figure(name, value, more) {
  return html("div", {}, html("dt", {}, name), html("dd", {}, value, html("span", {class: "hint"}, more)));
}

function placementFigures({arrays, elements, bytes, bytes_per_device: perDevice, replication}) {
  return [figure("elements", countText(elements), `in ${counted(arrays, "array")}, ${bytesText(bytes)}`),
          figure("memory of a device", bytesText(perDevice), `${percentText(perDevice / bytes)} of all`),
          figure("copies of each byte", replication.toFixed(2), "over the whole mesh, on average")];
}

function communicationFigures({collectives}) {
  return [figure("a step communicates", bytesText(sum(collectives, (record) => record.bytes)),
                 `on each device, in ${counted(collectives.length, "collective")}`)];
}

function chartFigures(chart) {
  return chart.series.filter((series) => series.highlight && series.points.length).map((series) => {
    const points = series.mean.length ? series.mean : series.points;
    const [x, y] = points[points.length - 1];
    return figure(series.name, valueText(y), `${chart.y}, ${chart.x} ${valueText(x)}`);
  });
}

function drawPage() {
  document.title = report.title;
  document.getElementById("title").textContent = report.title;
  const facts = document.getElementById("facts"), figures = document.getElementById("figures");
  for (const [name, value] of report.facts)
    facts.append(html("div", {}, html("dt", {}, name), html("dd", {}, value)));
  const parts = {
    placement: [report.placement?.rows.length, () => placementFigures(report.placement), drawPlacement],
    communication: [report.communication.collectives.length, () => communicationFigures(report.communication),
                    drawCommunication],
    activations: [report.activations, () => activationFigures(report.activations), drawActivations],
    profile: [report.profile, () => profileFigures(report.profile), drawProfile],
    charts: [report.charts.some((chart) => chart.series.some((series) => series.points.length)),
             () => report.charts.flatMap(chartFigures), drawCharts],
  };
  for (const [id, [present, mainFigures, draw]] of Object.entries(parts)) {
    if (!present) continue;
    const section = document.getElementById(id);
    section.hidden = false;
    figures.append(...mainFigures());
    draw(section);
  }
}

drawPage();
