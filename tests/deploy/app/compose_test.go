package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// composed is deploy/app/compose.yaml, checked by the schema of the specification, with anchors resolved.
func composed(t *testing.T) *types.Project {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "deploy/app"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: dir, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml")}}, Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The services of compose run here, over TLS, with the volumes and secrets that they name.
func TestComposeRunsHere(t *testing.T) {
	t.Parallel()
	project, pki, base := composed(t), makePKI(t, 3), newPlace(t)
	names := map[string]int{}
	for id := 1; id <= 3; id++ {
		names["kv-"+strconv.Itoa(id)] = id
	}
	if len(project.Services) != len(names) {
		t.Fatalf("there are the services %v", project.ServiceNames())
	}
	work := t.TempDir()
	var members []*process
	for id := 1; id <= 3; id++ {
		s := project.Services[fmt.Sprint("kv-", id)]
		if !s.ReadOnly || len(s.CapDrop) != 1 || s.StopGracePeriod == nil || s.Ulimits["nofile"].Single < 65536 || s.Volumes[0].Target != *s.Environment["MILLRACE_DIR"] ||
			project.Volumes[s.Volumes[0].Source].Name == "" || s.Build.Dockerfile != "deploy/app/Dockerfile" {
			t.Errorf("service %s: %+v", s.Name, s)
		}
		p := base
		p.dirs = map[string]string{"/data": filepath.Join(work, fmt.Sprint("data-", id)), "/run/secrets": filepath.Join(work, fmt.Sprint("secrets-", id))}
		for _, secret := range s.Secrets {
			copyFile(t, filepath.Join(pki, filepath.Base(project.Secrets[secret.Source].File)), filepath.Join(p.dirs["/run/secrets"], secret.Target))
		}
		env := os.Environ()
		for name, value := range s.Environment {
			env = append(env, name+"="+p.translate(*value, id, names))
		}
		members = append(members, start(t, env, program(t, "kv")))
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("service %s is published at %q", s.Name, port.HostIP)
			}
		}
	}
	for id := 1; id <= 3; id++ {
		eventually(t, fmt.Sprintf("member %d is ready", id), func() error {
			_, err := get("http://" + base.address(id, 9001) + "/readyz")
			return err
		}, members...)
	}
	put(t, "http://"+base.address(2, 8001)+"/keys/greeting", "hello")
	health := project.Services["kv-1"].HealthCheck.Test[1:] // after CMD
	output(t, program(t, strings.TrimPrefix(health[0], "/")), append(health[1:len(health)-1:len(health)-1], filepath.Join(work, "data-1"))...)
	for _, m := range members {
		m.stop(t, time.Duration(*project.Services["kv-1"].StopGracePeriod))
	}
}

// put writes a key.
func put(t *testing.T, url, value string) {
	t.Helper()
	eventually(t, "PUT "+url, func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(value))
		if err != nil {
			return err
		}
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer w.Body.Close()
		if w.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", w.Status)
		}
		return nil
	})
}
