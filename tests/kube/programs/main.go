// One program that is all of Kubernetes: the name it is called by (or its first argument) says which part.
//
// Everything is in one file because the parts share nearly all of their code: one link instead of eight, and a
// file to copy to a node instead of a package. Besides Kubernetes' own programs it holds etcd (embedded as its
// authors mean it) and CoreDNS with the few plugins that a cluster's names need.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJobs name time zones

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(manager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 kubectl,
	"etcd":                    etcd,
	"coredns":                 coremain.Run,
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	program := programs[name]
	if program == nil {
		fail(fmt.Errorf("%q is none of this program's parts: call it as kubectl, kubelet, kube-apiserver, …", name))
	}
	program()
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// etcd takes one argument, the file of its configuration.
func etcd() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("etcd takes one argument: the file of its configuration"))
	}
	config, err := embed.ConfigFromFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	server, err := embed.StartEtcd(config)
	if err != nil {
		fail(err)
	}
	fail(<-server.Err())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
