package config

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// inFile returns the name of the flag in a configuration file: the section, a dot, and the name.
func (f *Flag) inFile() string {
	if f.File != "" {
		return f.File
	}
	return f.Name
}

// fromFile reads etcd's configuration file, in YAML or JSON. Nothing else counts then, as in etcd. etcd
// ignores names that it does not know; here they are told as well.
func (l *Loaded) fromFile(path string, readFile func(string) ([]byte, error), flags bool) error {
	b, err := readFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration file: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(b, &tree); err != nil {
		return fmt.Errorf("the configuration file %s: %w", path, err)
	}
	if flags {
		l.warn("flags and environment variables are ignored, because there is a configuration file (%s)", path)
	}
	known := map[string]*Flag{}
	sections := map[string]bool{}
	for i := range Flags {
		f := &Flags[i]
		known[f.inFile()] = f
		if section, _, ok := strings.Cut(f.inFile(), "."); ok {
			sections[section] = true
		}
	}
	for name, value := range flatten(tree, sections) {
		f := known[name]
		if f == nil {
			l.warn("%s in the configuration file is not a setting of etcd 3.7 and is ignored", name)
			continue
		}
		v, err := f.fileText(value)
		if err != nil {
			return fmt.Errorf("%s in the configuration file %s: %w", name, path, err)
		}
		if v == "" {
			continue // etcd takes its default for an empty text
		}
		l.Values[f.Name] = Value{Text: v, Source: File}
	}
	sort.Strings(l.Warnings)
	return nil
}

// flatten names what is in sections with the section.
func flatten(tree map[string]any, sections map[string]bool) map[string]any {
	flat := map[string]any{}
	for name, value := range tree {
		if section, ok := value.(map[string]any); ok && sections[name] {
			for inner, v := range section {
				flat[name+"."+inner] = v
			}
		} else if value != nil {
			flat[name] = value
		}
	}
	return flat
}

// fileText returns the value of a file as the command line would have it.
func (f *Flag) fileText(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case []any:
		if f.kind != list {
			return "", fmt.Errorf("a list, where one value is wanted")
		}
		texts := make([]string, len(v))
		for i, x := range v {
			texts[i] = fmt.Sprint(x)
		}
		return strings.Join(texts, ","), nil
	case map[string]any:
		return "", fmt.Errorf("a section, where one value is wanted")
	case int:
		if f.kind == duration {
			return time.Duration(v).String(), nil // etcd's files have nanoseconds
		}
		return strconv.Itoa(v), nil
	default:
		return fmt.Sprint(v), nil
	}
}
