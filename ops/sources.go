package ops

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// environmentName is the name of a setting in the environment.
func environmentName(setting string) string {
	return EnvironmentPrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// notInFile are settings about the settings: a file or a variable with them would not say what happens.
var notInFile = []string{"config", "print-config"}

// ofService matches what Kubernetes puts into the environment of all pods for a Service called millrace.
var ofService = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?$`)

// parseEnvironment reads the variables of the prefix. All of them must be settings.
func (s *Settings) parseEnvironment(environment []string) error {
	names := map[string]string{}
	s.Flags.VisitAll(func(f *flag.Flag) { names[environmentName(f.Name)] = f.Name })
	sorted := slices.Sorted(slices.Values(environment)) // the first error is the same at each start
	for _, variable := range sorted {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, EnvironmentPrefix) {
			continue
		}
		setting, known := names[name]
		switch {
		case !known && ofService.MatchString(name):
			continue
		case !known:
			return fmt.Errorf("the environment has %.80s, which is no setting%s; -h lists them", name, s.similar(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, EnvironmentPrefix), "_", "-")), environmentName))
		case setting == "print-config":
			return fmt.Errorf("the environment has %s, which is for the command line only", name)
		}
		if err := s.set(setting, value, "the environment ("+name+")"); err != nil {
			return err
		}
	}
	return nil
}

// similar suggests a setting for a misspelled name, written by spell.
func (s *Settings) similar(name string, spell func(string) string) string {
	best, distance := "", 3 // further away it is another word
	s.Flags.VisitAll(func(f *flag.Flag) {
		if d := editDistance(name, f.Name, distance); d < distance {
			best, distance = f.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return " (" + spell(best) + " is)"
}

// editDistance is how many letters must be put in, left out or changed to make b of a, or most if it is more.
func editDistance(a, b string, most int) int {
	if len(a) > len(b)+most || len(b) > len(a)+most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return min(row[len(b)], most)
}

// maxFileBytes bounds a file with settings.
const maxFileBytes = 1 << 20

// readBounded reads a file of at most n bytes.
func readBounded(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, n+1))
	if err == nil && int64(len(text)) > n {
		err = fmt.Errorf("it has more than %d bytes, the most that are read", n)
	}
	return text, err
}

// parseFile reads a YAML file: one mapping of settings. A list of addresses may be a mapping, too.
func (s *Settings) parseFile(path string) error {
	text, err := readBounded(path, maxFileBytes)
	if err != nil {
		return fmt.Errorf("setting config (%s): %w", s.Source("config"), err)
	}
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	var root yaml.Node
	switch err := d.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil // empty, or nothing but comments
	case err != nil:
		return fmt.Errorf("%s: it is no YAML: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: it has more than one document, want one", path)
	}
	top := root.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%s, line %d: want settings such as \"id: 1\", have %s", path, top.Line, kindOf(top))
	}
	seen := map[string]int{}
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		where := fmt.Sprintf("%s, line %d", path, key.Line)
		if err := s.parseKey(where, seen, key); err != nil {
			return err
		}
		text, err := scalar(value)
		if err != nil {
			return fmt.Errorf("setting %s in %s: %w", key.Value, where, err)
		}
		if err := s.set(key.Value, text, where); err != nil {
			return err
		}
	}
	return nil
}

// parseKey refuses a key that is no setting, or was there before.
func (s *Settings) parseKey(where string, seen map[string]int, key *yaml.Node) error {
	switch first := seen[key.Value]; {
	case key.Kind != yaml.ScalarNode:
		return fmt.Errorf("%s: want the name of a setting, have %s", where, kindOf(key))
	case s.Flags.Lookup(key.Value) == nil:
		return fmt.Errorf("%s: %.80q is no setting%s; -h lists them", where, key.Value, s.similar(key.Value, func(name string) string { return name }))
	case slices.Contains(notInFile, key.Value):
		return fmt.Errorf("%s: %s is for the command line only", where, key.Value)
	case first > 0:
		return fmt.Errorf("%s: %s is set twice, on line %d before", where, key.Value, first)
	}
	seen[key.Value] = key.Line
	return nil
}

// scalar returns a value as the text of a flag. A mapping of scalars becomes 1=a,2=b.
func scalar(n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", errors.New("it has no value; leave it out for the default")
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind != yaml.MappingNode:
		return "", fmt.Errorf("want one value, have %s", kindOf(n))
	}
	var items []string
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || strings.ContainsAny(key.Value+value.Value, ",=") {
			return "", fmt.Errorf("line %d: want a number and an address, such as 1: 127.0.0.1:7001", key.Line)
		}
		items = append(items, key.Value+"="+value.Value)
	}
	return strings.Join(items, ","), nil
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	case yaml.AliasNode:
		return "an alias; write the value itself"
	}
	return strconv.Quote(n.Value)
}

// settingOf names the setting of each field of millrace.Config that has one.
var settingOf = map[string]string{
	"ID": "id", "Dir": "dir", "Members": "members", "ClientAddrs": "client-addresses", "Listen": "listen", "Joins": "joins",
	"Cluster": "cluster", "JoinToken": "join-token-file", "JoinTokens": "join-token-file", "Insecure": "insecure", "Leases": "leases", "Zone": "zone",
	"HeartbeatInterval": "heartbeat", "ElectionTimeout": "election-timeout", "StallTimeout": "stall-timeout", "MemoryBytes": "memory-bytes",
	"MaxCommandBytes": "max-command-bytes", "MaxLagBytes": "max-lag-bytes", "PublicationBytes": "publication-bytes", "SnapshotBytesPerSecond": "snapshot-rate", "ObjectBytesPerSecond": "object-rate",
	"AdminSocket": "admin-socket", "FlightRecorder.Bytes": "flight-bytes", "StageTimes": "stage-times",
	"Snapshots.LogBytes": "snapshot-bytes", "Snapshots.Every": "snapshot-every", "Snapshots.KeepBytes": "snapshot-keep-bytes", "Snapshots.MaxLogBytes": "snapshot-max-log-bytes",
	"TLS": "cert, key and ca", "TLS.CertFile": "cert", "TLS.KeyFile": "key", "TLS.CAFile": "ca",
}

var configField = regexp.MustCompile(`(?:Group)?Config\.(\w+(?:\.\w+)?)`)

// explainConfig says of which settings an error of Config speaks, and where they are from.
func (s *Settings) explainConfig(err error) error {
	if err == nil {
		return nil
	}
	var from []string
	for _, m := range configField.FindAllStringSubmatch(err.Error(), -1) {
		field := m[1]
		if settingOf[field] == "" {
			field, _, _ = strings.Cut(field, ".")
		}
		if name := settingOf[field]; name != "" {
			from = append(from, fmt.Sprintf("Config.%s is the setting %s (%s)", field, name, s.Source(name)))
		}
	}
	slices.Sort(from)
	if from = slices.Compact(from); len(from) == 0 {
		return err
	}
	return fmt.Errorf("%w [%s]", err, strings.Join(from, "; "))
}
