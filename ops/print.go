package ops

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// printHelp prints every setting with its default and what it is for.
func (s *Settings) printHelp() {
	fmt.Fprintf(s.output, "Settings of %s. Each is a flag, a variable of the environment, and a key of the file that --config names;\nthe flag wins over the variable, and the variable over the file.\n\n", s.Flags.Name())
	s.Flags.VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		fmt.Fprintf(s.output, "  %s\n        %s\n", strings.TrimRight("--"+f.Name+" "+kind, " "), text)
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "false" {
			fmt.Fprintf(s.output, "        default %s\n", f.DefValue)
		}
	})
	fmt.Fprintf(s.output, "\nIn the environment: %s, and so on.\n", environmentName("id"))
}

// printSettings prints all settings as a file, which gives the same settings when it is read.
func (s *Settings) printSettings() error {
	var err error
	s.Flags.VisitAll(func(f *flag.Flag) {
		if slices.Contains(notInFile, f.Name) || err != nil {
			return
		}
		var value []byte
		value, err = yaml.Marshal(printed(f))
		fmt.Fprintf(s.output, "%s: %s # %s\n", f.Name, strings.TrimSpace(string(value)), s.Source(f.Name))
	})
	if err != nil {
		return err
	}
	return ErrPrinted
}

// printed is the value of a setting for YAML: numbers and words without quotes.
func printed(f *flag.Flag) any {
	text := f.Value.String()
	var node yaml.Node
	if g, ok := f.Value.(flag.Getter); ok && yaml.Unmarshal([]byte(text), &node) == nil {
		switch g.Get().(type) {
		case uint64, int64, int, bool:
			return node.Content[0]
		}
	}
	return text
}
