package structure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The words test reads every comment, string literal, declared name and document of the repository, in all
// its modules, and compares them with the tables in wordlist_test.go. A finding names file, line, the
// construction, and what to write instead.
//
// It leaves out: testdata (the goldens of etcd-io/raft and scripts), docs/track-record.md
// and its earlier part (history), and the tables themselves.

// maxCommentColumns bounds a line that holds nothing but a comment. A tab counts as one column.
const maxCommentColumns = 110

// unread are the files that the words test does not read.
var unread = []string{"docs/track-record.md", "docs/track-record-earlier.md", "internal/structure/wordlist_test.go"}

// passage is a stretch of text without a gap: the lines of one comment, a string literal, a paragraph of a
// document. Its lines are joined by spaces, so that a construction is found across a line break.
type passage struct {
	text  string
	lines []int // the line on which each part begins
	at    []int // the offset in text at which each part begins
}

func (p *passage) add(line int, text string) {
	if p.text != "" {
		p.text += " "
	}
	p.lines, p.at = append(p.lines, line), append(p.at, len(p.text))
	p.text += text
}

// line returns the line of the file that offset is on.
func (p *passage) line(offset int) int {
	part, _ := slices.BinarySearch(p.at, offset+1)
	return p.lines[part-1]
}

type finding struct {
	file    string
	line    int
	what    string
	instead string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: write %s", f.file, f.line, f.what, f.instead)
}

// TestWords: no comment, string literal, document or declared name has what the tables in wordlist_test.go
// list.
func TestWords(t *testing.T) {
	inRoot(t)
	for _, f := range allFindings(t) {
		t.Error(f)
	}
}

// Each line of the tables finds its own example, and leaves the right form alone.
func TestWordTables(t *testing.T) {
	if len(phrases) < 40 {
		t.Errorf("%d phrases; the table had at least 40", len(phrases))
	}
	for _, p := range slices.Concat(phrases, citations) {
		r := regexp.MustCompile(p.pattern)
		if !r.MatchString(p.hit) {
			t.Errorf("%s does not find %q", p.pattern, p.hit)
		}
		if found := r.FindString(p.miss); found != "" && !allowed(found) {
			t.Errorf("%s finds %q in %q", p.pattern, found, p.miss)
		}
	}
	for _, n := range names {
		r := regexp.MustCompile(n.pattern)
		if !r.MatchString(n.hit) || r.MatchString(n.miss) {
			t.Errorf("%s: finds %q: %v, finds %q: %v; want only the first",
				n.pattern, n.hit, r.MatchString(n.hit), n.miss, r.MatchString(n.miss))
		}
	}
}

func allFindings(t *testing.T) []finding {
	var found []finding
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		file = filepath.ToSlash(file)
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case slices.Contains(unread, file):
		case strings.HasSuffix(file, ".go"):
			source, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found = append(found, inPassages(file, goPassages(t, file, source))...)
			found = append(found, longComments(file, string(source))...)
			found = append(found, forbiddenNames(t, file, source)...)
		case strings.HasSuffix(file, ".md"):
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found = append(found, inPassages(file, documentPassages(string(text)))...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inPassages finds each construction at most once in a passage.
func inPassages(file string, passages []passage) []finding {
	var found []finding
	for _, p := range passages {
		lower := strings.ToLower(p.text)
		for _, want := range compiled {
			if want.literals != nil && !containsAny(lower, want.literals) {
				continue
			}
			for _, at := range want.r.FindAllStringIndex(p.text, -1) {
				text := p.text[at[0]:at[1]]
				if allowed(text) {
					continue
				}
				start := at[0] + len(text) - len(strings.TrimLeft(text, ".:; "))
				found = append(found, finding{file, p.line(start), fmt.Sprintf("%q", strings.Trim(text, ".:; ")), want.instead})
				break
			}
		}
	}
	return found
}

func containsAny(text string, some []string) bool {
	return slices.ContainsFunc(some, func(s string) bool { return strings.Contains(text, s) })
}

type compiledPhrase struct {
	r        *regexp.Regexp
	instead  string
	literals []string // of which each match has one
}

var compiled = func() (all []compiledPhrase) {
	for _, p := range slices.Concat(phrases, citations) {
		all = append(all, compiledPhrase{regexp.MustCompile(p.pattern), p.instead, mustLiterals(p.pattern)})
	}
	return all
}()

// allowed reports whether a text that a pattern finds is good English all the same: Go's regular expressions
// cannot exclude it themselves.
func allowed(found string) bool {
	return slices.ContainsFunc(exceptions, func(e *regexp.Regexp) bool { return e.MatchString(found) })
}

var exceptions = []*regexp.Regexp{
	regexp.MustCompile(`(?:more|less) than$`),
	regexp.MustCompile(`\bst(?:ands?|anding|ood) in for$`),
	regexp.MustCompile(`\bfrom (?:then|now|that (?:point|moment|time)|there|here|here and) on\b`),
}

// goPassages are the comments and string literals of a Go file.
func goPassages(t *testing.T, file string, source []byte) []passage {
	files := token.NewFileSet()
	f := files.AddFile(file, -1, len(source))
	var s scanner.Scanner
	s.Init(f, source, func(at token.Position, message string) { t.Errorf("%v: %s", at, message) }, scanner.ScanComments)
	var all []passage
	var comment passage
	end := func() {
		if comment.text != "" {
			all = append(all, comment)
		}
		comment = passage{}
	}
	for last := 0; ; {
		pos, tok, literal := s.Scan()
		line := f.Line(pos)
		if tok != token.COMMENT || line > last+1 {
			end()
		}
		switch {
		case tok == token.EOF:
			return all
		case tok == token.COMMENT && strings.HasPrefix(literal, "//"):
			text := strings.TrimSpace(strings.TrimPrefix(literal, "//"))
			if text == "" || strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "|") || line == last {
				end()
			}
			if text != "" {
				comment.add(line, text)
			}
			last = line
		case tok == token.COMMENT || tok == token.STRING:
			var p passage
			for i, part := range strings.Split(literal, "\n") {
				p.add(line+i, strings.TrimSpace(strings.Trim(part, "\"`")))
			}
			all = append(all, p)
		}
	}
}

var codeSpan = regexp.MustCompile("`[^`]*`")

// documentPassages are the paragraphs and table rows of a document, without code spans. The section of
// STYLE.md that quotes what not to write is left out by its heading.
func documentPassages(text string) []passage {
	var all []passage
	var p passage
	end := func() {
		if p.text != "" {
			all = append(all, p)
		}
		p = passage{}
	}
	quoting := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			quoting = line == "## Language"
		}
		if line == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "- ") {
			end()
		}
		if line = codeSpan.ReplaceAllString(line, "`"); line != "" && !quoting {
			p.add(i+1, strings.Trim(line, "|# "))
		}
	}
	end()
	return all
}

func longComments(file, source string) []finding {
	var found []finding
	for i, line := range strings.Split(source, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "//") && !strings.HasPrefix(line, "//go:") &&
			utf8.RuneCountInString(line) > maxCommentColumns && !strings.Contains(line, "://") {
			found = append(found, finding{file, i + 1,
				fmt.Sprintf("a comment of %d columns", utf8.RuneCountInString(line)), fmt.Sprintf("at most %d", maxCommentColumns)})
		}
	}
	return found
}

// forbiddenNames finds declarations whose name is in the table.
func forbiddenNames(t *testing.T, file string, source []byte) []finding {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	var found []finding
	declare := func(kind string, id *ast.Ident) {
		for _, n := range compiledNames {
			if (n.kind == "" || n.kind == kind) && (n.under == "" || strings.HasPrefix(file, n.under+"/")) && n.r.MatchString(id.Name) {
				found = append(found, finding{file, files.Position(id.Pos()).Line, kind + " " + id.Name, n.instead})
			}
		}
		if word, in := outsideItsFolders(file, id.Name); word != "" {
			found = append(found, finding{file, files.Position(id.Pos()).Line, kind + " " + id.Name,
				fmt.Sprintf("another word: %s has the glossary's meaning, only in %s", strings.ToLower(word), strings.Join(in, ", "))})
		}
	}
	fields := func(kind string, list *ast.FieldList) {
		if list == nil {
			return
		}
		for _, field := range list.List {
			for _, id := range field.Names {
				declare(kind, id)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			declare("func", n.Name)
			fields("value", n.Recv)
		case *ast.FuncType:
			fields("value", n.Params)
			fields("value", n.Results)
		case *ast.TypeSpec:
			declare("type", n.Name)
		case *ast.StructType:
			fields("field", n.Fields)
		case *ast.InterfaceType:
			fields("func", n.Methods)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				declare("value", id)
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					declare("value", id)
				}
			}
		case *ast.RangeStmt:
			for _, left := range []ast.Expr{n.Key, n.Value} {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					declare("value", id)
				}
			}
		}
		return true
	})
	return found
}

// outsideItsFolders returns the word in a name that may not occur in the file, and where it may.
func outsideItsFolders(file, name string) (word string, in []string) {
	first, size := utf8.DecodeRuneInString(name)
	for _, m := range folderWord.FindAllStringSubmatch(string(unicode.ToUpper(first))+name[size:], -1) {
		if in := folders[m[1]]; !slices.ContainsFunc(in, func(folder string) bool {
			return strings.HasPrefix(file, folder+"/") || folder == "." && !strings.Contains(file, "/")
		}) {
			return m[1], in
		}
	}
	return "", nil
}

// folderWord finds a word of folders as a part of a name, and its plural.
var folderWord = regexp.MustCompile(`(` + strings.Join(slices.Sorted(maps.Keys(folders)), "|") + `)s?(?:[^a-z]|$)`)

func TestWordsAreKeptInTheirFolders(t *testing.T) {
	for name, want := range map[string]string{"lane": "Lane", "lanes": "Lane", "laneCount": "Lane", "newLane": "Lane", "planes": "", "lanes2": "Lane", "released": ""} {
		if have, _ := outsideItsFolders("cmd/x.go", name); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
		if have, _ := outsideItsFolders("host/x.go", name); have != "" {
			t.Errorf("%s in host: %q", name, have)
		}
	}
}

type compiledName struct {
	declared
	r *regexp.Regexp
}

var compiledNames = func() (all []compiledName) {
	for _, n := range names {
		all = append(all, compiledName{n, regexp.MustCompile(n.pattern)})
	}
	return all
}()

// nounsInING are file names of the runtime that end as a participle does, and are nouns.
var nounsInING = []string{"batching", "finding", "founding", "logging", "objectwiring", "ring", "wiring"}

// A file of the runtime is named after a thing, and not after what was done to it: nouns, and no participles.
func TestFilesAreNamedByNouns(t *testing.T) {
	inRoot(t)
	files, err := filepath.Glob("host/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no files: ", err)
	}
	for _, part := range partFiles(t) {
		files = append(files, part...)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".go")
		isParticiple := strings.HasSuffix(name, "ed") || strings.HasSuffix(name, "ing")
		if isParticiple && !strings.HasSuffix(file, "_test.go") && !slices.Contains(nounsInING, name) {
			t.Errorf("%s is named by a participle: name it by a noun", file)
		}
	}
}
