// Lists what /openapi.json says.

const make = (tag, text, ...children) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};

const document_ = await (await fetch("/openapi.json")).json();
const kind = (schema) => {
  if (!schema) return "";
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  return schema.type || "";
};

for (const [path, methods] of Object.entries(document_.paths)) {
  for (const [method, told] of Object.entries(methods)) {
    const section = make("section", "", make("h2", `${method.toUpperCase()} ${path}`), make("p", told.description || told.summary));
    const reference = told.requestBody?.content["application/json"].schema.$ref;
    const fields = reference
      ? Object.entries(document_.components.schemas[reference.split("/").at(-1)].properties)
      : (told.parameters || []).map((one) => [one.name, one.schema]);
    if (fields.length) {
      const list = make("ul", "");
      for (const [name, schema] of fields) {
        const rest = schema.default === undefined ? "" : `, ${JSON.stringify(schema.default)} if not given`;
        list.append(make("li", "", make("code", name), ` ${kind(schema)}${rest}`));
      }
      section.append(list);
    }
    document.getElementById("paths").append(section);
  }
}
