package structure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// A sentence that needs a second reading is too long, or hangs one clause into another (STYLE.md, Language).
const (
	maxSentenceWords = 28
	maxPointers      = 2 // of the words in pointers
)

var pointers = []string{"that", "which", "those", "one"}

// longSentences are sentences that may stay, by their first words, with a reason for each. At most 30.
var longSentences = map[string]string{}

type sentence struct {
	file string
	line int
	text string
}

// wrong says what makes a sentence hard to read, and "" if nothing does.
func (s sentence) wrong() string {
	words, pointing := 0, 0
	for _, w := range strings.Fields(s.text) {
		if !strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			continue
		}
		words++
		if slices.Contains(pointers, strings.ToLower(strings.TrimFunc(w, func(r rune) bool { return !unicode.IsLetter(r) }))) {
			pointing++
		}
	}
	switch {
	case words > maxSentenceWords:
		return fmt.Sprintf("%d words, at most %d", words, maxSentenceWords)
	case pointing > maxPointers:
		return fmt.Sprintf("%d times %s, at most %d", pointing, strings.Join(pointers, ", "), maxPointers)
	}
	return ""
}

var (
	sentenceEnd  = regexp.MustCompile(`[.!?][)"*_]*\s+`)
	markdownLink = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	abbreviation = regexp.MustCompile(`\b(?:e\.g|i\.e|vs|cf|approx)\.\s+$`)
)

// sentencesOf splits a text at full stops.
func sentencesOf(file string, line int, text string) (all []sentence) {
	for start := 0; start < len(text); {
		end := len(text)
		for _, at := range sentenceEnd.FindAllStringIndex(text[start:], -1) {
			if !abbreviation.MatchString(text[start : start+at[1]]) {
				end = start + at[1]
				break
			}
		}
		all = append(all, sentence{file, line, strings.TrimSpace(text[start:end])})
		start = end
	}
	return all
}

// documentSentences are those of the paragraphs, list items, headings and table cells of a document, without
// its code.
func documentSentences(file, text string) (all []sentence) {
	paragraph, began, fenced := "", 0, false
	end := func() {
		all = append(all, sentencesOf(file, began, withoutMarkup(paragraph))...)
		paragraph = ""
	}
	for i, line := range strings.Split(text, "\n") {
		if paragraph == "" && strings.HasPrefix(line, "    ") {
			continue
		}
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			end()
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		switch {
		case strings.HasPrefix(line, "|"):
			end()
			for cell := range strings.SplitSeq(strings.Trim(withoutMarkup(line), "|"), "|") {
				all = append(all, sentencesOf(file, i+1, strings.TrimSpace(cell))...)
			}
			continue
		case line == "" || strings.HasPrefix(line, "#") || listItem.MatchString(line) || strings.HasPrefix(line, "<"):
			end()
		}
		if line == "" || strings.HasPrefix(line, "<") {
			continue
		}
		if paragraph == "" {
			began = i + 1
		}
		paragraph += listItem.ReplaceAllString(line, "") + " "
	}
	end()
	return all
}

// withoutMarkup has the texts of links, and a word for each piece of code.
func withoutMarkup(text string) string {
	return codeSpan.ReplaceAllString(markdownLink.ReplaceAllString(text, "$1"), "code")
}

var listItem = regexp.MustCompile(`^(?:[-*]|\d+\.) +`)

// docComments are the sentences of the doc comments of what a package exports, its package comment included.
func docComments(t *testing.T, file string) (all []sentence) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil {
				all = append(all, commentSentences(file, files.Position(g.Pos()).Line, g.Text())...)
			}
		}
	}
	add(f.Doc)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv)) {
				add(d.Doc)
			}
		case *ast.GenDecl:
			exported := false
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					if slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
						exported = true
						add(spec.Doc, spec.Comment)
					}
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						exported = true
						add(spec.Doc, spec.Comment)
						members(spec.Type, add)
					}
				}
			}
			if exported {
				add(d.Doc)
			}
		}
	}
	return all
}

// members adds the comments of exported fields and methods.
func members(of ast.Expr, add func(...*ast.CommentGroup)) {
	var list *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	default:
		return
	}
	for _, f := range list.List {
		if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			add(f.Doc, f.Comment)
			members(f.Type, add)
		}
	}
}

func exportedReceiver(list *ast.FieldList) bool {
	exported := false
	ast.Inspect(list, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && ast.IsExported(id.Name) {
			exported = true
		}
		return true
	})
	return exported
}

// commentSentences splits a comment at empty lines, list items and code.
func commentSentences(file string, line int, text string) (all []sentence) {
	paragraph := ""
	end := func() {
		all = append(all, sentencesOf(file, line, paragraph)...)
		paragraph = ""
	}
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\n")
		trimmed := strings.TrimSpace(l)
		switch {
		case trimmed == "" || strings.HasPrefix(l, "# "):
			end()
			continue
		case listItem.MatchString(trimmed):
			end()
			paragraph = listItem.ReplaceAllString(trimmed, "") + " "
			continue
		case strings.HasPrefix(l, "\t") || strings.HasPrefix(l, "    ") && paragraph == "":
			end()
			continue
		}
		paragraph += trimmed + " "
	}
	end()
	return all
}

// errorTexts are the sentences of the errors that a file makes. An error has no full stop: a semicolon is
// between what is wrong and what to do.
func errorTexts(t *testing.T, file string) (all []sentence) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); !ok || s.Sel.Name != "Errorf" && s.Sel.Name != "New" {
			return true
		}
		if text, ok := literalText(call.Args[0]); ok {
			for part := range strings.SplitSeq(text, "; ") {
				all = append(all, sentencesOf(file, files.Position(call.Pos()).Line, part)...)
			}
		}
		return true
	})
	return all
}

// literalText returns a string literal, also one of parts that are added.
func literalText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, okLeft := literalText(e.X)
		right, okRight := literalText(e.Y)
		return left + right, okLeft || okRight
	}
	return "", false
}

// TestSentences: no sentence of README, ARCHITECTURE, CHANGELOG and the how-to pages, of an error, and of the
// doc comment of anything exported has more than 28 words, nor more than two of that, which, those and one.
func TestSentences(t *testing.T) {
	inRoot(t)
	pages, err := filepath.Glob("docs/howto/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("how-to pages: %v, %v", pages, err)
	}
	report := func(s sentence) {
		if wrong := s.wrong(); wrong != "" && !mayStay(s) {
			t.Errorf("%s:%d: %s: %s", s.file, s.line, wrong, s.text)
		}
	}
	for _, page := range append(pages, "README.md", "ARCHITECTURE.md", "CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range documentSentences(page, string(text)) {
			report(s)
		}
	}
	packages := goFiles(t)
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		for _, file := range packages[dir] {
			for _, s := range append(errorTexts(t, file), docComments(t, file)...) {
				report(s)
			}
		}
	}
	if len(longSentences) > 30 {
		t.Errorf("%d sentences are exceptions; at most 30", len(longSentences))
	}
}

func mayStay(s sentence) bool {
	for words := range longSentences {
		if strings.HasPrefix(s.text, words) {
			return true
		}
	}
	return false
}

// TestSentencesAreFound: what the test of sentences must find, and what it must leave alone.
func TestSentencesAreFound(t *testing.T) {
	long := strings.Repeat("word ", maxSentenceWords+1)
	for text, want := range map[string]int{
		long:                         1,
		strings.Repeat("word ", 28):  0,
		"Half. " + long + ". Short.": 1,
		"- item\n" + long:            1,
		"| cell | " + long + " |":    1,
		"    " + long:                0,
		"```\n" + long + "\n```":     0,
		"`" + long + "` is code":     0,
		"that which those":           1,
		"That one. Those which":      0,
		"A [link](" + strings.Repeat("a/", 40) + ") counts its text": 0,
	} {
		have := 0
		for _, s := range documentSentences("x.md", text) {
			if s.wrong() != "" {
				have++
			}
		}
		if have != want {
			t.Errorf("%q: %d sentences are found, want %d", text, have, want)
		}
	}
}
