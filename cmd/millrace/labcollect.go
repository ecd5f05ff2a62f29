package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
)

const collectLong = `collect copies the results of a load that serves them (millrace lab load --serve), and all other runs in its directory, and
verifies them. A run that is complete in --out already is left alone; one that was partial is replaced. When all were copied
and the load is done, it is told that it may end.

On Kubernetes the load's port is reached with kubectl port-forward; docs/howto/lab.md has the commands.

`

func newLabCollect(a app) *cobra.Command {
	var o remote.Collecting
	var certificates string
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Fetch the results of a load that ran elsewhere",
		Long:  collectLong + labExitHelp(),
		Example: `  millrace lab collect --from 127.0.0.1:7003 --certificates pki --out runs --wait 1h
  millrace lab report runs/*`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.From == "":
				return usageError{errors.New("--from is missing; name the address at which the load serves its results")}
			case o.Out == "":
				return usageError{errors.New("--out is missing; name the directory for the runs")}
			case o.Wait < 0 || o.Wait > maxServed:
				return lab.Invalid("Wait", "%v is not between 0 and %v", o.Wait, maxServed)
			}
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			if certificates != "" {
				own, err := remote.LoadCredentials(certificates)
				if err != nil {
					return lab.Cannot("Certificates", "%v", err)
				}
				o.Credentials = own
			}
			o.Say = func(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }
			_, err := remote.Collect(cmd.Context(), o)
			return labError(err)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.From, "from", "", "`address` at which the load serves its results")
	flags.StringVar(&certificates, "certificates", "", "`directory` with ca.pem, load.pem and load-key.pem (default plain TCP)")
	flags.StringVar(&o.Out, "out", "", "`directory` for the runs; made if missing")
	flags.DurationVar(&o.Wait, "wait", 0, "wait for a load that goes on, or is not there yet; 0: take what it has by now")
	flags.BoolVar(&o.Keep, "keep", false, "do not tell the load that it may end")
	return cmd
}

const maxServed = 30 * 24 * time.Hour
