package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
)

func newLabCertificates(a app) *cobra.Command {
	var dir, name string
	var members, days int
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Make what members and loads prove to each other who they are with",
		Long: `certificates makes a CA and, signed by it, a certificate for each member (--certificates of millrace lab member) and one for
loads (of millrace lab load and collect), all in --dir. The key of the CA is not kept: for more members make all again. Give each
machine ca.pem and its own two files.

` + labExitHelp(),
		Example: `  millrace lab certificates --dir pki --members 3`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case dir == "":
				return usageError{fmt.Errorf("--dir is missing; name the directory for the certificates")}
			case members < 1 || members > lab.MaxHosts:
				return usageError{fmt.Errorf("--members: %d is not between 1 and %d", members, lab.MaxHosts)}
			case days < 1 || days > 3650:
				return usageError{fmt.Errorf("--days: %d is not between 1 and 3650", days)}
			}
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			made, err := remote.MakeCertificates(dir, name, members, time.Duration(days)*24*time.Hour)
			if errors.Is(err, fs.ErrExist) {
				return statusError{exitCannot, fmt.Errorf("%w: remove the old files, or choose another directory", err)}
			}
			if err != nil {
				return cannot(err)
			}
			for _, file := range made {
				fmt.Fprintf(a.stdout, "made  %s\n", filepath.Join(dir, file))
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` for the files; made if missing")
	cmd.Flags().IntVar(&members, "members", 3, "how many members")
	cmd.Flags().IntVar(&days, "days", 30, "how many days they are valid")
	cmd.Flags().StringVar(&name, "name", "millrace lab", "name of the CA")
	return cmd
}
