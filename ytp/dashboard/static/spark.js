/* A line of recent values. */
export function draw(canvas, values) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  const most = Math.max(1, ...values);
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  context.beginPath();
  values.forEach((value, i) => {
    const x = width - (values.length - 1 - i) * (width / 59), y = height - 2 - (value / most) * (height - 4);
    if (i) context.lineTo(x, y); else context.moveTo(x, y);
  });
  context.stroke();
}
