package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// actionProperties are the properties that are about steps, not about states.
var actionProperties = []string{"PreVotesDisturbNone"}

// model returns the text of a model's .cfg file.
func model(name string) (string, error) {
	text, err := sources.ReadFile("tla/" + name + ".cfg")
	return string(text), err
}

// withConstants returns a configuration with other values for some of its constants.
func withConstants(config string, constants map[string]string) (string, error) {
	for name, value := range constants {
		line := regexp.MustCompile(`(?m)^  ` + name + ` = .*$`)
		if !line.MatchString(config) {
			return "", fmt.Errorf("the configuration has no constant %s", name)
		}
		config = line.ReplaceAllLiteralString(config, "  "+name+" = "+value)
	}
	return config, nil
}

var propertyLine = regexp.MustCompile(`(?m)^(?:INVARIANTS|PROPERTIES)\b(.*)\n?`)

// withProperty returns a configuration that checks one property only.
func withProperty(config, property string) string {
	section := "INVARIANTS"
	if slices.Contains(actionProperties, property) {
		section = "PROPERTIES"
	}
	return propertyLine.ReplaceAllLiteralString(config, "") + section + " " + property + "\n"
}

// propertiesOf returns the properties that a configuration checks.
func propertiesOf(config string) (names []string) {
	for _, m := range propertyLine.FindAllStringSubmatch(config, -1) {
		names = append(names, strings.Fields(m[1])...)
	}
	return names
}
