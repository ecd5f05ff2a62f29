package host

import (
	"path/filepath"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/vfs"
)

// A host uses the paths of its configuration for as long as it runs: for each new segment and snapshot, and
// each time that it looks at its certificates. The working directory may change meanwhile (a daemon goes to
// /, a test to its own directory). A relative path would then lead elsewhere, and what was opened before goes
// on in the old place. So Open makes each path absolute, once, before anything is read. Invariant: after Open
// no path of Config is relative. Config.Dir is a path of the host's filesystem; the others are those of the
// machine.

// absolute returns c with absolute paths.
func (c Config) absolute(fsys vfs.FS) (_ Config, err error) {
	if c.Dir, err = vfs.Absolute(fsys, c.Dir); err != nil {
		return c, identity.RelativePath("Config.Dir", err)
	}
	if c.TLS == nil || c.TLS.Source != nil {
		return c, nil
	}
	tls := *c.TLS
	for _, file := range []struct {
		name string
		path *string
	}{{"CertFile", &tls.CertFile}, {"KeyFile", &tls.KeyFile}, {"CAFile", &tls.CAFile}} {
		if *file.path == "" {
			continue // validateTLS says so
		}
		if *file.path, err = filepath.Abs(*file.path); err != nil {
			return c, identity.RelativePath("Config.TLS."+file.name, err)
		}
	}
	c.TLS = &tls
	return c, nil
}
