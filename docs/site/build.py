#!/usr/bin/env python3
"""Builds the documents as a site, with a search that works without a server, and checks it.

    docs/site/build.py [--out DIR] [--tools DIR]

The pages are the Markdown files that git knows, at their places. The menu is that of docs/README.md, so a new page is
listed there. Links to code lead to the repository. Afterwards each link, anchor and image of each page must exist in
the site, and no page may load anything from elsewhere: a site that is copied to a machine without a network is whole.

The generator is Zensical, pinned with its dependencies and their hashes in requirements.txt. It is installed into DIR
of --tools, once.
Exit status: 0 done, 1 the site is not whole, 3 the tools cannot be installed, 64 wrong usage.
"""
import argparse, html.parser, os, posixpath, re, shutil, subprocess, sys, tempfile, urllib.parse, venv

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CODE = "https://github.com/millrace/millrace/blob/main/"
PICTURES = (".svg", ".png", ".gif")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", default=os.path.join(tempfile.gettempdir(), "millrace-site"), help="the directory of the site; it is replaced if this program made it")
    p.add_argument("--tools", default=os.path.join(tempfile.gettempdir(), "millrace-site-tools"), help="where the generator is, or is installed")
    try:
        a = p.parse_args()
    except SystemExit as e:
        sys.exit(64 if e.code else 0)
    out = os.path.abspath(a.out)
    if os.path.exists(out) and not os.path.exists(os.path.join(out, "index.html")) and os.listdir(out):
        fail(64, f"{out} exists and is no site; name another directory with --out")
    zensical = install(os.path.abspath(a.tools))
    with tempfile.TemporaryDirectory() as stage:
        pages, problems = collect(os.path.join(stage, "docs"))
        with open(os.path.join(stage, "zensical.toml"), "w") as f:
            f.write(settings(pages))
        r = subprocess.run([zensical, "build", "--clean"], cwd=stage, capture_output=True, text=True)
        if r.returncode:
            fail(1, f"zensical build: {r.stdout}{r.stderr}")
        own_shim(os.path.join(stage, "site"))
        problems += check(os.path.join(stage, "site"))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(os.path.join(stage, "site"), out)
    for s in problems:
        print(s)
    if problems:
        fail(1, f"{len(problems)} links or resources of the site are wrong")
    print(f"{len(pages)} pages in {out}; open index.html")


def fail(status, text):
    print(f"build.py: {text}", file=sys.stderr)
    sys.exit(status)


def install(tools):
    """Returns the path of the generator, of the versions in requirements.txt."""
    wanted = open(os.path.join(HERE, "requirements.txt")).read()
    stamp, program = os.path.join(tools, "requirements.txt"), os.path.join(tools, "bin", "zensical")
    if os.path.exists(program) and os.path.exists(stamp) and open(stamp).read() == wanted:
        return program
    if os.path.exists(tools) and not os.path.exists(os.path.join(tools, "pyvenv.cfg")):
        fail(64, f"{tools} exists and holds no tools of this program; name another directory with --tools")
    shutil.rmtree(tools, ignore_errors=True)
    venv.create(tools, with_pip=True)
    r = subprocess.run([os.path.join(tools, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:", "-r", os.path.join(HERE, "requirements.txt")], capture_output=True, text=True)
    if r.returncode:
        fail(3, f"the generator cannot be installed: {r.stderr.strip()}")
    with open(stamp, "w") as f:
        f.write(wanted)
    return program


def tracked():
    r = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    if r.returncode:
        fail(1, f"git ls-files: {r.stderr.strip()}")
    return [f for f in r.stdout.split("\0") if f]


def collect(stage):
    """Copies pages and pictures, and lets the links to everything else lead to the repository. Returns the pages, and the
    links to what git does not know."""
    files, problems = tracked(), []
    pages = [f for f in files if f.endswith(".md") and ("testdata/" not in f or linked(f))]
    there = set(pages) | {f for f in files if f.endswith(PICTURES)}
    known = set(files)
    for f in files:
        while f := posixpath.dirname(f):
            known.add(f)
    for f in there:
        to = os.path.join(stage, f)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if not f.endswith(".md"):
            shutil.copy(os.path.join(ROOT, f), to)
            continue
        text = open(os.path.join(ROOT, f)).read()
        with open(to, "w") as w:
            w.write(rewrite(text, f, there, known, problems))
    return pages, problems


def linked(page):
    """Whether a document names the page: the other pages in testdata are goldens of tests."""
    return posixpath.basename(page) in open(os.path.join(ROOT, "docs", "README.md")).read() + open(os.path.join(ROOT, "docs", "how-we-know.md")).read()


def rewrite(text, page, there, known, problems):
    """Returns the page with links that lead into the site, or to the repository; code blocks stay as they are."""
    def target(m):
        path, mark, anchor = m[1].partition("#")
        if not path or urllib.parse.urlparse(m[1]).scheme:
            return m[0]
        at = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if at in there:
            return m[0]
        if at + "/README.md" in there:
            return f"]({posixpath.relpath(at + '/README.md', posixpath.dirname(page) or '.')}{mark}{anchor})"
        if at not in known and at != ".":
            problems.append(f"{page}: {m[1]}: git knows no such file")
        return f"]({CODE}{at}{mark}{anchor})"

    fenced, lines = False, []
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        lines.append(line if fenced else re.sub(r"\]\(([^)\s]+)\)", target, line))
    return "\n".join(lines)


def settings(pages):
    """The settings of the generator, with the menu of docs/README.md: a heading is a section, a link a page."""
    text = open(os.path.join(ROOT, "docs", "README.md")).read()
    menu, section, listed = [("Millrace", ["README.md"])], None, {"README.md"}
    for line in text.split("\n"):
        if line.startswith("## "):
            section = (line[3:].strip(), [])
            menu.append(section)
        elif line.startswith("|") and section:
            for link in re.findall(r"\]\(([^)#\s]+\.md)\)", line):
                at = posixpath.normpath(posixpath.join("docs", link))
                if at in pages and at not in listed:
                    listed.add(at)
                    section[1].append(at)
    rest = [p for p in pages if p not in listed and p != "docs/README.md"]
    if rest:
        menu.append(("More", rest))
    quote = lambda s: '"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"'
    nav = ",\n".join("  { " + quote(name) + " = [" + ", ".join(quote(p) for p in at) + "] }" for name, at in menu if at)
    head = open(os.path.join(HERE, "zensical.toml")).read()
    return head.replace("nav = []", f"nav = [\n{nav}\n]")


def own_shim(site):
    """Gives the site the script with which search works in pages that are opened as files: the generator names a server."""
    shutil.copy(os.path.join(HERE, "iframe-worker.js"), os.path.join(site, "assets", "iframe-worker.js"))
    for path in html_files(site):
        text = open(path).read()
        at = os.path.relpath(os.path.join(site, "assets", "iframe-worker.js"), os.path.dirname(path))
        with open(path, "w") as f:
            f.write(text.replace("https://unpkg.com/iframe-worker/shim", at))


def html_files(site):
    for folder, _, files in os.walk(site):
        yield from (os.path.join(folder, f) for f in files if f.endswith(".html"))


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.links, self.loads, self.anchors = [], [], set()

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        for key in ("id", "name"):
            if a.get(key):
                self.anchors.add(a[key])
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        elif tag == "link" and a.get("href") and set((a.get("rel") or "").split()) & {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch"}:
            self.loads.append(a["href"])
        elif tag in ("script", "img", "iframe", "source", "video", "audio", "embed") and a.get("src"):
            self.loads.append(a["src"])


def check(site):
    pages = {}
    for path in html_files(site):
        pages[path] = Page()
        pages[path].feed(open(path).read())
    problems = []
    for path, p in sorted(pages.items()):
        name = os.path.relpath(path, site)
        for link in p.loads:
            if urllib.parse.urlparse(link).scheme not in ("", "data") or link.startswith("//"):
                problems.append(f"{name}: loads {link} from elsewhere")
        for link in p.links + [l for l in p.loads if not urllib.parse.urlparse(l).scheme]:
            u = urllib.parse.urlparse(link)
            if u.scheme or link.startswith("//") or name == "404.html":
                continue
            at = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(u.path))) if u.path else path
            if os.path.isdir(at):
                at = os.path.join(at, "index.html")
            if not os.path.exists(at):
                problems.append(f"{name}: {link} is not there")
            elif u.fragment and at in pages and urllib.parse.unquote(u.fragment) not in pages[at].anchors:
                problems.append(f"{name}: {link}: no such heading")
    if len(pages) < 20:
        problems.append(f"the site has only {len(pages)} pages")
    return problems


if __name__ == "__main__":
    main()
