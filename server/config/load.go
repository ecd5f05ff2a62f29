package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Source says where the value of a flag comes from.
type Source string

const (
	Default     Source = "default"
	CommandLine Source = "flag"
	Environment Source = "environment"
	File        Source = "file"
)

// Value is the value of a flag, as a text, and its source.
type Value struct {
	Text   string
	Source Source
	Name   string // of the environment variable
}

// Values are the values of all flags, by name.
type Values map[string]Value

// Loaded is a configuration with what an operator should know about it.
type Loaded struct {
	Config   *Config
	Values   Values
	Warnings []string // sentences: what has no effect, what is shadowed
	Print    bool     // --print-config was given
	Version  bool     // --version was given
}

// ErrHelp is returned for --help.
var ErrHelp = flag.ErrHelp

// Load reads a configuration: the command line without the program's name, the environment as
// os.Environ returns it, and a file if the command line or the environment names one. Every error is a
// sentence for an operator.
func Load(args, environ []string, readFile func(string) ([]byte, error)) (*Loaded, error) {
	l := &Loaded{Values: Values{}}
	for _, f := range Flags {
		l.Values[f.Name] = Value{Text: f.Default, Source: Default}
	}
	line, path, err := l.parse(args)
	if err != nil {
		return nil, err
	}
	if path == "" {
		path = lookupEnv(environ, "config-file").Text
	}
	if path != "" {
		err = l.fromFile(path, readFile, len(line) > 0)
	} else {
		l.fromEnvironment(environ, line)
		for name, v := range line {
			l.Values[name] = Value{Text: v, Source: CommandLine}
		}
	}
	if err == nil {
		l.Config, err = l.build()
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// parse reads the command line, and returns what it sets.
func (l *Loaded) parse(args []string) (set map[string]string, path string, err error) {
	fs := flag.NewFlagSet("millrace serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&path, "config-file", "", "")
	fs.BoolVar(&l.Print, "print-config", false, "")
	fs.BoolVar(&l.Version, "version", false, "")
	set = map[string]string{}
	for _, f := range Flags {
		store := func(v string) error { set[f.Name] = v; return nil }
		if f.kind == boolean {
			fs.BoolFunc(f.Name, f.Usage, store)
		} else {
			fs.Func(f.Name, f.Usage, store)
		}
	}
	if err := fs.Parse(args); err != nil {
		return nil, "", flagError(err)
	}
	if fs.NArg() > 0 {
		return nil, "", fmt.Errorf("%q is not a valid flag: every setting has the form --name=value", fs.Arg(0))
	}
	return set, path, nil
}

func flagError(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return ErrHelp
	}
	return fmt.Errorf("%w (see millrace serve --help)", err)
}

// fromEnvironment takes ETCD_NAME and MILLRACE_NAME for each flag that the command line does not set.
func (l *Loaded) fromEnvironment(environ []string, line map[string]string) {
	for _, f := range Flags {
		v := lookupEnv(environ, f.Name)
		if v.Name == "" {
			continue
		}
		if _, shadowed := line[f.Name]; shadowed {
			l.warn("%s is ignored, because the command line has --%s", v.Name, f.Name)
			continue
		}
		l.Values[f.Name] = v
	}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if known, of := ofEnv(name); known && of != "config-file" && lookup(of) == nil {
			l.warn("the environment variable %s names no flag and is ignored", name)
		}
	}
}

// ofEnv returns the flag that a variable names, and whether it has one of the two prefixes.
func ofEnv(name string) (bool, string) {
	for _, prefix := range []string{"ETCD_", "MILLRACE_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return true, strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		}
	}
	return false, ""
}

// lookupEnv returns the value that the environment has for a flag. A variable that is empty counts as
// not set.
func lookupEnv(environ []string, name string) (v Value) {
	for _, prefix := range []string{"ETCD_", "MILLRACE_"} {
		variable := prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		for _, pair := range environ {
			if key, value, _ := strings.Cut(pair, "="); key == variable && value != "" {
				v = Value{Text: value, Source: Environment, Name: variable}
			}
		}
	}
	return v
}

func (l *Loaded) warn(format string, args ...any) {
	l.Warnings = append(l.Warnings, fmt.Sprintf(format, args...))
}

// where names a flag as its source does.
func (l *Loaded) where(f *Flag) string {
	switch v := l.Values[f.Name]; v.Source {
	case Environment:
		return v.Name
	case File:
		return f.inFile() + " in the configuration file"
	}
	return "--" + f.Name
}

// check checks the form of every value, and what flags without effect and refused ones say.
func (l *Loaded) check() error {
	for i := range Flags {
		f := &Flags[i]
		v := l.Values[f.Name]
		if v.Source == Default {
			continue
		}
		if err := f.checkForm(v.Text); err != nil {
			return fmt.Errorf("%s: %w", l.where(f), err)
		}
		if f.same(v.Text, f.Default) {
			continue
		}
		switch f.Effect {
		case Refused:
			return fmt.Errorf("%s is not served: %s", l.where(f), f.Why)
		case Ignored:
			l.warn("%s has no effect: %s", l.where(f), f.Why)
		}
	}
	return nil
}

// checkForm reports whether a text is a value of the flag.
func (f *Flag) checkForm(v string) (err error) {
	switch f.kind {
	case boolean:
		if _, err = strconv.ParseBool(v); err != nil {
			err = fmt.Errorf("%q is neither true nor false", v)
		}
	case number:
		if _, err = strconv.ParseUint(v, 10, 63); err != nil {
			err = fmt.Errorf("%q is not a number of 0 or more", v)
		}
	case integer:
		if _, err = strconv.ParseInt(v, 10, 64); err != nil {
			err = fmt.Errorf("%q is not a number", v)
		}
	case duration:
		if _, err = time.ParseDuration(v); err != nil {
			err = fmt.Errorf("%q is not a duration such as 500ms or 5s", v)
		}
	}
	return err
}

// same reports whether two texts mean the same value.
func (f *Flag) same(a, b string) bool {
	switch f.kind {
	case boolean:
		x, _ := strconv.ParseBool(a)
		y, _ := strconv.ParseBool(b)
		return x == y
	case duration:
		x, _ := time.ParseDuration(a)
		y, _ := time.ParseDuration(b)
		return x == y
	}
	return a == b
}

// Text returns the configuration as it is in force, one flag a line, and the ids of the members, for
// --print-config.
func (l *Loaded) Text() string {
	var b strings.Builder
	for _, f := range Flags {
		v := l.Values[f.Name]
		fmt.Fprintf(&b, "%s: %s", f.Name, strconv.Quote(v.Text))
		notes := []string{string(v.Source)}
		if v.Name != "" {
			notes[0] = v.Name
		}
		if f.Effect != Works {
			notes = append(notes, f.Effect.String())
		}
		fmt.Fprintf(&b, " # %s\n", strings.Join(notes, ", "))
	}
	for _, m := range l.Config.Cluster { // certificates of members name the id: millrace cert member --id
		id := m.ID(l.Config.Token)
		fmt.Fprintf(&b, "# member %s has id %d (%x)\n", m.Name, id, id)
	}
	return b.String()
}

// Help returns the table of all flags.
func Help() string {
	var b strings.Builder
	for _, own := range []bool{false, true} {
		if own {
			b.WriteString("\nFlags of Millrace:\n")
		} else {
			b.WriteString("Flags of etcd 3.7 that work:\n")
		}
		for _, f := range Flags {
			if f.Effect == Works && f.Own == own {
				fmt.Fprintf(&b, "  --%s '%s'\n      %s\n", f.Name, f.Default, f.Usage)
			}
		}
	}
	for _, e := range []Effect{Ignored, Refused} {
		names := map[string][]string{}
		for _, f := range Flags {
			if f.Effect == e {
				names[f.Why] = append(names[f.Why], "--"+f.Name)
			}
		}
		if e == Ignored {
			b.WriteString("\nFlags of etcd 3.7 that are accepted and change nothing:\n")
		} else {
			b.WriteString("\nFlags of etcd 3.7 that are refused:\n")
		}
		whys := make([]string, 0, len(names))
		for why := range names {
			whys = append(whys, why)
		}
		sort.Slice(whys, func(i, j int) bool { return names[whys[i]][0] < names[whys[j]][0] })
		for _, why := range whys {
			fmt.Fprintf(&b, "  %s\n      %s\n", strings.Join(names[why], " "), why)
		}
	}
	return b.String()
}
