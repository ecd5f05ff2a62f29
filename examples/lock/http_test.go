package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLargeForms: a form may carry the parameters; one of more than maxBodyBytes is refused, and not read to
// its end.
func TestLargeForms(t *testing.T) {
	for _, c := range []struct {
		form, kind string
	}{
		{"ttl=10s&owner=" + strings.Repeat("a", maxBodyBytes), "application/x-www-form-urlencoded"},
		{"--b\r\nContent-Disposition: form-data; name=\"owner\"\r\n\r\n" + strings.Repeat("a", 1<<20) + "\r\n--b--\r\n", "multipart/form-data; boundary=b"},
	} {
		body := strings.NewReader(c.form)
		r := httptest.NewRequest("POST", "/locks/a?owner=me&ttl=10s", body)
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		(&server{}).handler().ServeHTTP(w, r) // it has no node: a command would panic
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "the form does not parse") {
			t.Errorf("%s: status %d, %q", c.kind, w.Code, w.Body)
		}
		if read := len(c.form) - body.Len(); read > 4*maxBodyBytes {
			t.Errorf("%s: %d bytes were read", c.kind, read)
		}
	}
}
