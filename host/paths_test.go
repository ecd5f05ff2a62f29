package host

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Every text in the configuration of a host is either made absolute in Open, or is listed here as no path. A
// field that is added fails until it is one of the two.
func TestNoPathOfConfigIsRelative(t *testing.T) {
	noPath := map[string]bool{"Config.Listen": true, "Config.Zone": true}
	dir := t.TempDir()
	t.Chdir(dir)
	c := Config{TLS: &TLS{}}
	var fill, look func(name string, v reflect.Value)
	fill = func(name string, v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			v.SetString("relative")
		case reflect.Struct:
			for i := range v.NumField() {
				fill(name+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Pointer:
			fill(name, v.Elem())
		}
	}
	look = func(name string, v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			if have := v.String(); filepath.IsAbs(have) == noPath[name] {
				t.Errorf("%s: Open makes %q of a relative text", name, have)
			}
		case reflect.Struct:
			for i := range v.NumField() {
				look(name+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Pointer:
			look(name, v.Elem())
		}
	}
	fill("Config", reflect.ValueOf(&c))
	given := *c.TLS
	absolute, err := c.absolute(vfs.OS())
	if err != nil {
		t.Fatal(err)
	}
	look("Config", reflect.ValueOf(&absolute))
	if !reflect.DeepEqual(given, *c.TLS) {
		t.Error("the TLS of the caller was changed")
	}
	if c, err := (Config{Dir: "data"}).absolute(crashfs.New()); err != nil || c.Dir != "data" {
		t.Errorf("a simulated disk has no working directory: %q, %v", c.Dir, err)
	}
}
