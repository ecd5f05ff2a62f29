//go:build planted_install_without_conf

package planted

// InstallWithoutConf makes a member install a snapshot with a configuration of its own, in place of the
// snapshot's.
const InstallWithoutConf = true
