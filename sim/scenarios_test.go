package sim_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

// Each scenario of the list runs, says how much has happened, and gives the same run for the same seed. One
// with a length ends sooner if it is shorter.
func TestScenarios(t *testing.T) {
	names := map[string]bool{}
	for _, s := range sim.Scenarios() {
		if names[s.Name] || s.Name == "" || s.About == "" {
			t.Errorf("%+v has a name that another one has, or lacks a text", s)
		}
		names[s.Name] = true
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var reports [2]sim.Report
			for i := range reports {
				report, err := s.Run(sim.Options{Seed: 3, Faults: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				reports[i] = report
			}
			if r := reports[0]; r != reports[1] || r.Seed != 3 || r.Events == 0 || r.Virtual == 0 || r.Digest == 0 {
				t.Errorf("%v\nand then %v", reports[0], reports[1])
			}
			if s.Faults == 0 {
				return
			}
			if longer, err := s.Run(sim.Options{Seed: 3, Faults: 2 * time.Second}); err != nil || longer.Virtual < reports[0].Virtual+500*time.Millisecond {
				t.Errorf("with faults for 2 s it ends after %v (%v), for 1 s after %v", longer.Virtual, err, reports[0].Virtual)
			}
		})
	}
}
