package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/event"
)

// Each field of an event that is an error, however deep, is its text in JSON, and each other field is there.
func TestErrorsOfEventsAreTextInJSON(t *testing.T) {
	if n := countEvents(t, "../transport/tcp"); n != len(tlsEvents) {
		t.Errorf("package tcp has %d events, and the list of this test %d", n, len(tlsEvents))
	}
	all := make([]any, 0, len(someEvents)+2*len(tlsEvents))
	for _, e := range someEvents {
		all = append(all, e)
	}
	for _, e := range tlsEvents {
		all = append(all, e)
	}
	errs := 0
	for _, e := range all {
		full := reflect.New(reflect.TypeOf(e)).Elem()
		var texts []string
		fill(full, &texts)
		errs += len(texts)
		held := []any{full.Interface(), full.Addr().Interface()}
		if tls := reflect.TypeFor[event.TLSEvent]().Field(0).Type; full.Type().Implements(tls) {
			whole := reflect.New(reflect.TypeFor[event.TLSEvent]()).Elem()
			whole.Field(0).Set(full)
			held = append(held, whole.Interface())
		}
		for _, v := range held {
			text, err := json.Marshal(v)
			if err != nil {
				t.Errorf("%T: %v", v, err)
			}
			for _, want := range texts {
				if !strings.Contains(string(text), fmt.Sprintf("%q", want)) {
					t.Errorf("%T lacks the text of an error in JSON: %s", v, text)
				}
			}
		}
		for _, v := range []any{e, full.Interface()} {
			var fields map[string]any
			text, err := json.Marshal(v)
			if err = errors.Join(err, json.Unmarshal(text, &fields)); err != nil {
				t.Errorf("%T: %s: %v", v, text, err)
			}
			for i := range full.NumField() {
				name := full.Type().Field(i).Name
				have, is := fields[name]
				if empty := have == nil; !is || full.Field(i).Type() == reflect.TypeFor[error]() && empty != reflect.ValueOf(v).Field(i).IsNil() {
					t.Errorf("%T has no %s, or another than it should, in JSON: %s", v, name, text)
				}
			}
			if len(fields) != full.NumField() {
				t.Errorf("%T has %d fields, and in JSON: %s", v, full.NumField(), text)
			}
		}
	}
	if errs != 8 {
		t.Errorf("%d errors are in events, want the 8 that are known; if there is another, count it", errs)
	}
}

// fill gives each error in a value a text of its own, and adds it to texts. Pointers and slices get an
// element.
func fill(v reflect.Value, texts *[]string) {
	if v.Type() == reflect.TypeFor[error]() {
		text := fmt.Sprintf("reason %d", len(*texts))
		*texts = append(*texts, text)
		v.Set(reflect.ValueOf(errors.New(text)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), texts)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), texts)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), texts)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), texts)
		}
	}
}
