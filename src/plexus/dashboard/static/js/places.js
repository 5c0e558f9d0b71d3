// Where nodes are on the picture: at their cities on a map of the world, or in rings where no city is known.
const NORTH = 84, SOUTH = -57, DEGREE = Math.PI / 180;

// The Natural Earth projection (a polynomial), in units of the sphere's radius.
export function project(lon, lat) {
  const l = lon * DEGREE, p = lat * DEGREE, p2 = p * p, p4 = p2 * p2;
  return [
    l * (0.8707 - 0.131979 * p2 + p4 * (-0.013791 + p4 * (0.003971 * p2 - 0.001529 * p4))),
    p * (1.007226 + p2 * (0.015085 + p4 * (-0.044475 + 0.028874 * p2 - 0.005916 * p4))),
  ];
}

const TOP = project(0, NORTH)[1], BOTTOM = project(0, SOUTH)[1], SIDE = project(180, 0)[0];
export const SHAPE = (2 * SIDE) / (TOP - BOTTOM);

export function onMap(width, height) {
  const scale = Math.min(width / (2 * SIDE), height / (TOP - BOTTOM)) * 0.985;
  const left = width / 2, middle = height / 2 + ((TOP + BOTTOM) / 2) * scale;
  return (lon, lat) => { const [x, y] = project(lon, lat); return [left + x * scale, middle - y * scale]; };
}

export function positions(nodes, count, width, height) {
  const places = nodes.places;
  const known = places && places.latitude.some((v) => v !== null);
  return known ? atCities(nodes, count, onMap(width, height)) : inRings(count, width, height);
}

// Nodes of one city lie around it like the seeds of a sunflower.
function atCities({ places, place_of }, count, point) {
  const taken = new Map();
  return Array.from({ length: count }, (_, node) => {
    const place = place_of[node], lat = places.latitude[place], lon = places.longitude[place];
    if (lat === null || lat === undefined) return null;
    const [x, y] = point(lon, lat), n = taken.get(place) || 0;
    taken.set(place, n + 1);
    const r = 3.4 * Math.sqrt(n), a = n * 2.39996;
    return [x + r * Math.cos(a), y + r * Math.sin(a)];
  });
}

function inRings(count, width, height) {
  const rings = Math.max(1, Math.ceil(count / 90)), found = [];
  for (let node = 0; node < count; node++) {
    const ring = node % rings, inRing = Math.ceil((count - ring) / rings), n = Math.floor(node / rings);
    const a = (2 * Math.PI * n) / inRing - Math.PI / 2, share = rings === 1 ? 1 : 0.55 + (0.45 * (ring + 1)) / rings;
    found.push([width / 2 + share * (width / 2 - 60) * 0.8 * Math.cos(a), height / 2 + share * (height / 2 - 62) * Math.sin(a) - 18]);
  }
  return found;
}
