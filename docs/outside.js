// Links that leave docs/ are those of the repository, where they work. In the book, which has those pages only, they are the names of what
// they lead to.
const home = new URL(path_to_root || "./", document.baseURI).href;
for (const link of document.querySelectorAll("main a[href]")) {
  const relative = link.getAttribute("href");
  if (!relative.startsWith("../") || link.href.startsWith(home)) continue;
  const name = document.createElement("span");
  name.title = "In the repository: " + relative.replace(/^(\.\.\/)+/, "").replace(/\.html(#.*)?$/, ".md");
  name.append(...link.childNodes);
  link.replaceWith(name);
}
