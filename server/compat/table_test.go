package compat

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/template"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A table of requests is a file of testdata. A section begins with "## ", a row with "= " and its name. The
// next lines say what is sent, as a template between « and ». The answer of etcd follows ("etcd ", a line
// each), that of this service if it differs ("here "), and why ("why "). A row whose name begins with "given"
// prepares others.

// row is a row of the table.
type row struct {
	section, name string
	send          []string // lines, before the template
	etcd, here    []string
	why           string
}

// prepares reports whether the row only prepares others.
func (r *row) prepares() bool { return strings.HasPrefix(r.name, "given") }

// table is a file of rows.
type table struct {
	path string
	head []string
	rows []*row
}

func readTable(path string) (*table, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := &table{path: path}
	section := ""
	for n, line := range strings.Split(string(text), "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		last := &row{}
		if len(t.rows) > 0 {
			last = t.rows[len(t.rows)-1]
		}
		switch {
		case line == "":
		case kind == "##":
			section = rest
		case kind == "=":
			t.rows = append(t.rows, &row{section: section, name: rest})
		case kind == "#" && len(t.rows) == 0:
			t.head = append(t.head, line)
		case len(t.rows) == 0:
			return nil, fmt.Errorf("%s:%d: %q is before the first row", path, n+1, line)
		case kind == "etcd":
			last.etcd = append(last.etcd, rest)
		case kind == "here":
			last.here = append(last.here, rest)
		case kind == "why":
			last.why = rest
		default:
			last.send = append(last.send, line)
		}
	}
	return t, nil
}

// write writes the table with the answers that it has now.
func (t *table) write() error {
	var b strings.Builder
	fmt.Fprintln(&b, strings.Join(t.head, "\n"))
	section := ""
	for _, r := range t.rows {
		if r.section != section {
			section = r.section
			fmt.Fprintf(&b, "\n## %s\n", section)
		}
		fmt.Fprintf(&b, "\n= %s\n%s\n", r.name, strings.Join(r.send, "\n"))
		for _, line := range r.etcd {
			fmt.Fprintln(&b, "etcd "+line)
		}
		for _, line := range r.here {
			fmt.Fprintln(&b, "here "+line)
		}
		if r.why != "" {
			fmt.Fprintln(&b, "why "+r.why)
		}
	}
	return os.WriteFile(t.path, []byte(b.String()), 0o600)
}

// lines returns what is sent, after the templates.
func (r *row) lines() (out []string, err error) {
	for _, line := range r.send {
		parsed, err := template.New(r.name).Delims("«", "»").Funcs(words).Parse(line)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		if err := parsed.Execute(&b, nil); err != nil {
			return nil, err
		}
		out = append(out, b.String())
	}
	return out, nil
}

// words are what templates may call.
var words = template.FuncMap{
	"b64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"times": func(n int, s string) string { return strings.Repeat(s, n) },
	// list is a text n times with commas; % in it becomes the number.
	"list": func(n int, s string) string {
		all := make([]string, n)
		for k := range all {
			all[k] = strings.ReplaceAll(s, "%", fmt.Sprint(k))
		}
		return strings.Join(all, ",")
	},
	"preface": func() string { return http2.ClientPreface + frame(4, 0, 0, "") },
	"frame":   frame,
	"headers": headers,
	// message is a message of gRPC in a DATA frame that ends stream 1.
	"message": func(s string) string {
		return frame(0, 1, 1, string([]byte{0, 0, 0, byte(len(s) >> 8), byte(len(s))})+s)
	},
}

// frame is a frame of HTTP/2.
func frame(kind, flags, stream int, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(kind), byte(flags), byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}) + payload
}

// headers is a HEADERS frame of a stream, whose end is the end of the headers.
func headers(stream, flags int, fields ...string) (string, error) {
	if len(fields)%2 != 0 {
		return "", errors.New("a header has no value")
	}
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for k := 0; k < len(fields); k += 2 {
		if err := e.WriteField(hpack.HeaderField{Name: fields[k], Value: fields[k+1]}); err != nil {
			return "", err
		}
	}
	return frame(1, 4|flags, stream, b.String()), nil
}

// TestTableIsWrittenAsItIs holds that reading and writing a table keeps it.
func TestTableIsWrittenAsItIs(t *testing.T) {
	for _, path := range []string{inputs, options} {
		have, err := readTable(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		have.path = t.TempDir() + "/table"
		if err := have.write(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(have.path); string(got) != string(want) {
			t.Errorf("%s is not in the form in which -update writes it", path)
		}
	}
}
