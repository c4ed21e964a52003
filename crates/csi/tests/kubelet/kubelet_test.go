// Volumes of trees by the code of kubelet 1.37: registration, set-up, statistics and tear-down, for a
// volume within a pod and for a PersistentVolume. `run` builds and starts it.

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	api "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	fakeclient "k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csi"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
)

// Kubelet's own code registers the driver, and sets volumes up and down.
func TestPodReadsTree(t *testing.T) {
	dir, socket, tree := os.Getenv("KUBELET_DIR"), os.Getenv("CSI_SOCKET"), os.Getenv("TREE")
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	attach, info, policy := false, true, storagev1.NoneFSGroupPolicy
	client := fakeclient.NewSimpleClientset(
		&api.Node{ObjectMeta: meta.ObjectMeta{Name: "fakeNode"}},
		&storagev1.CSINode{ObjectMeta: meta.ObjectMeta{Name: "fakeNode"}},
		&storagev1.CSIDriver{
			ObjectMeta: meta.ObjectMeta{Name: "csi.vouch"},
			Spec:       storagev1.CSIDriverSpec{AttachRequired: &attach, PodInfoOnMount: &info, FSGroupPolicy: &policy, VolumeLifecycleModes: modes},
		},
	)
	factory := informers.NewSharedInformerFactory(client, 0)
	drivers := factory.Storage().V1().CSIDrivers().Lister()
	attachments := factory.Storage().V1().VolumeAttachments().Lister()
	factory.Start(wait.NeverStop)
	factory.WaitForCacheSync(wait.NeverStop)
	host := volumetest.NewFakeKubeletVolumeHostWithCSINodeName(t, dir, client, csi.ProbeVolumePlugins(), "fakeNode", drivers, attachments)
	manager := host.GetPluginMgr()
	if err := csi.PluginHandler.ValidatePlugin(t.Context(), "csi.vouch", socket, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	if err := csi.PluginHandler.RegisterPlugin(t.Context(), "csi.vouch", socket, []string{"1.0.0"}, nil); err != nil {
		t.Fatal(err)
	}
	readOnly := true
	inline := &volume.Spec{Volume: &api.Volume{Name: "inline", VolumeSource: api.VolumeSource{CSI: &api.CSIVolumeSource{
		Driver: "csi.vouch", ReadOnly: &readOnly, VolumeAttributes: map[string]string{"name": tree},
	}}}}
	persistent := volume.NewSpecFromPersistentVolume(&api.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: "pv"},
		Spec: api.PersistentVolumeSpec{
			AccessModes: []api.PersistentVolumeAccessMode{api.ReadOnlyMany},
			PersistentVolumeSource: api.PersistentVolumeSource{CSI: &api.CSIPersistentVolumeSource{
				Driver: "csi.vouch", VolumeHandle: "static", VolumeAttributes: map[string]string{"name": tree + "/dir"},
			}},
		},
	}, true)
	for number, spec := range []*volume.Spec{inline, persistent} {
		pod := &api.Pod{ObjectMeta: meta.ObjectMeta{UID: "uid-1", Name: "pod", Namespace: "default"}, Spec: api.PodSpec{NodeName: "fakeNode"}}
		plugin, err := manager.FindPluginBySpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		mounter, err := plugin.NewMounter(spec, pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := mounter.SetUp(volume.MounterArgs{}); err != nil {
			t.Fatal(err)
		}
		file := []string{"hello", "numbers"}[number]
		if _, err := os.ReadFile(filepath.Join(mounter.GetPath(), file)); err != nil {
			t.Fatal(err)
		}
		metrics, err := mounter.GetMetrics()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s at %s: capacity %v\n", spec.Name(), mounter.GetPath(), metrics.Capacity)
		unmounter, err := plugin.NewUnmounter(spec.Name(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		if err := unmounter.TearDown(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(mounter.GetPath()); !os.IsNotExist(err) {
			t.Fatalf("%s remains: %v", mounter.GetPath(), err)
		}
	}
}
