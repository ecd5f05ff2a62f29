package spec

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TLC must find each planted error, when it checks that property alone. So each property is known to bite.
func TestPlantedErrors(t *testing.T) {
	for _, p := range planted {
		t.Run(p.name+"/"+p.property, func(t *testing.T) {
			t.Parallel()
			tlc, folder := checker(t)
			config, err := model(p.model)
			if err != nil {
				t.Fatal(err)
			}
			constants := map[string]string{"Plant": `"` + p.name + `"`}
			for name, value := range p.bounds {
				constants[name] = value
			}
			if config, err = withConstants(config, constants); err != nil {
				t.Fatal(err)
			}
			config = withProperty(config, p.property)
			if p.way != "" {
				config += "CONSTRAINT " + p.way + "\n"
			}
			begin := time.Now()
			o, err := tlc.run(t.Context(), job{folder: folder, module: moduleOf(p.model), config: config, workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			if o.violated != p.property {
				t.Errorf("%s: TLC does not find it: %v", p.says, o)
			}
			t.Logf("%v, in %.1f s", o, time.Since(begin).Seconds())
		})
	}
}

// Every property that a model checks has a planted error that breaks it, and every planted error of the
// specification is in the table.
func TestEachPropertyBites(t *testing.T) {
	broken := map[string]bool{}
	for _, p := range planted {
		broken[p.property] = true
	}
	for _, name := range append(slices.Clone(smallModels), "all") {
		config, err := model(name)
		if err != nil {
			t.Fatal(err)
		}
		properties := propertiesOf(config)
		if len(properties) == 0 {
			t.Errorf("model %s checks nothing", name)
		}
		for _, property := range properties {
			if !broken[property] {
				t.Errorf("model %s checks %s, which no planted error breaks", name, property)
			}
		}
	}
	for _, file := range []string{"Core", "Raft", "Founding"} {
		text, err := sources.ReadFile("tla/" + file + ".tla")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range plantsIn(string(text)) {
			if !slices.ContainsFunc(planted, func(p plantedError) bool { return p.name == name }) {
				t.Errorf("%s.tla has the planted error %s, which is not in the table", file, name)
			}
		}
	}
	for _, p := range planted {
		if strings.TrimSpace(p.says) == "" {
			t.Errorf("the table does not say what %s is", p.name)
		}
	}
}
