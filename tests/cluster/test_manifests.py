"""What places to run are described by, checked without them: image, compose file, Kubernetes, scripts of SLURM."""

import copy
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from making import PACKAGE

TOP = PACKAGE.parent
RECIPES = TOP / "cluster"
pytestmark = pytest.mark.skipif(not RECIPES.exists(), reason="the recipes are not part of an installed package")
MANIFESTS = ["configuration.yaml", "data.yaml", "network.yaml", "train.yaml"]


def installed(name):
    """The directory of a library that has schemas."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"needs {name}: pip install -e '.[manifests]'")
    return Path(found.submodule_search_locations[0])


def read(path):
    return yaml.safe_load((RECIPES / path).read_text())


def pods(tree):
    """Every specification of containers in a manifest."""
    if isinstance(tree, dict):
        if "containers" in tree:
            yield tree
        tree = list(tree.values())
    for part in tree if isinstance(tree, list) else ():
        yield from pods(part)


# Containers


def problems_of_compose(tree):
    import jsonschema

    path = installed("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(path.read_text())
    return [error.message for error in jsonschema.validators.validator_for(schema)(schema).iter_errors(tree)]


def test_the_compose_file_is_of_its_schema():
    tree = read("container/compose.yaml")
    assert problems_of_compose(tree) == []
    wrong = copy.deepcopy(tree)
    wrong["services"]["worker"]["restrat"] = "always"
    assert "restrat" in problems_of_compose(wrong)[0]


def test_containers_speak_tls_and_publish_nothing():
    services = read("container/compose.yaml")["services"]
    assert not any("ports" in service for service in services.values())
    for name in ("scheduler", "worker"):
        words = services[name]["command"]
        assert words[words.index("--dashboard-address") + 1] == "127.0.0.1:0" and services[name]["restart"] == "always"
    assert "tls://scheduler:8786" in services["worker"]["command"]
    assert not re.search(r"tcp://", (RECIPES / "container" / "compose.yaml").read_text())


def test_the_image_is_made_of_files_that_are_there():
    text = (RECIPES / "container" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert {words[0] for words in lines} == {"FROM", "RUN", "COPY", "USER", "WORKDIR", "ENV", "CMD"}
    copied = [source for words in lines if words[0] == "COPY" for source in words[1:-1]]
    assert copied and all((TOP / source).exists() for source in copied)
    sent = re.findall("^!(.*)", (RECIPES / "container" / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert set(copied) == set(sent)
    order = [words[0] for words in lines]
    assert lines[order.index("USER")][1] == "bigclf" and "RUN" not in order[order.index("USER") :]


# Kubernetes


def problem_of_manifest(tree):
    installed("kubernetes_validate")
    import kubernetes_validate

    try:
        kubernetes_validate.validate(tree, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return error.message
    return None


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_of_its_schema(name):
    tree = read(f"kubernetes/{name}")
    assert problem_of_manifest(tree) is None
    tree["metadata"]["nmae"] = "bigclf"
    assert "nmae" in problem_of_manifest(tree)


def problems_of_cluster(tree):
    """By the schema of the operator's own resource; it lets misspelt names pass, so each is looked up as well."""
    import jsonschema

    crds = installed("dask_kubernetes").glob("operator/deployment/helm/*/crds/daskcluster.yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # it is a megabyte
    (version,) = yaml.load(next(crds).read_text(), loader)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    found = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(tree)]
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    return [*found, *unknown(tree, schema)]


def unknown(tree, schema):
    if isinstance(tree, list):
        for part in tree:
            yield from unknown(part, schema.get("items", {}))
    elif isinstance(tree, dict) and "properties" in schema:
        for name, part in tree.items():
            if name not in schema["properties"] and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"no {name}"
            yield from unknown(part, schema["properties"].get(name, {}))


def test_the_cluster_is_of_the_operators_schema():
    pytest.importorskip("jsonschema")
    tree = read("kubernetes/cluster.yaml")
    assert problems_of_cluster(tree) == []
    wrong = copy.deepcopy(tree)
    wrong["spec"]["worker"]["spec"]["containers"][0]["resuorces"] = {}
    wrong["spec"]["worker"]["replicas"] = "many"
    assert sorted(problems_of_cluster(wrong)) == ["'many' is not of type 'integer'", "no resuorces"]


def test_pods_show_their_certificate_and_have_no_more_rights_than_they_need():
    trees = [read(f"kubernetes/{name}.yaml") for name in ("cluster", "train")]
    found = [pod for tree in trees for pod in pods(tree)]
    assert len(found) == 3
    for pod in found:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and not container["securityContext"]["allowPrivilegeEscalation"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert mounts.keys() == volumes.keys()
        assert {"name": "DASK_CONFIG", "value": mounts["configuration"]} in container["env"]
        own = "bigclf-client" if container["name"] == "train" else "bigclf-node"
        assert volumes["certificates"]["secret"] == {"secretName": own, "defaultMode": 0o440}
    tls = yaml.safe_load(read("kubernetes/configuration.yaml")["data"]["tls.yaml"])["distributed"]["comm"]
    assert tls["require-encryption"] is True and tls["tls"]["ca-file"] == "/certificates/ca.pem"


# SLURM


@pytest.mark.parametrize("name", ["train", "workers"])
def test_scripts_of_slurm_are_shell(name):
    path = RECIPES / "slurm" / f"{name}.sbatch"
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    subprocess.run(["bash", "-n", str(path)], check=True)
    lines = path.read_text().splitlines()
    options = [line for line in lines if line.startswith("#SBATCH ")]
    assert lines[0] == "#!/bin/bash" and len(options) >= 7
    assert any(line.startswith("#SBATCH --signal=B:TERM@") for line in options) and "#SBATCH --requeue" in options


FAKES = {
    "scontrol": 'echo "JobId=7 Command=$RECIPE/train.sbatch JobState=RUNNING"',
    "sbatch": "echo 8",
    "scancel": 'echo "scancel $*" >> calls',
    "sleep": "exit 0",
    "python": 'case "$*" in *dask_scheduler*) echo "{}" > "$PWD/bigclf-7/scheduler.json"; exec /bin/sleep 60 ;;'
    ' "-m bigclf.tls"*) touch "$PWD/bigclf-7/ca.pem" "$PWD/bigclf-7/tls.yaml" ;; *) echo tls://here:1 ;; esac',
    "squeue": 'echo squeue >> calls; echo "RUNNING (None)"',
    "bigclf": 'echo bigclf >> calls; [ "$(grep -c bigclf calls)" -lt "$LOSES" ] || exit 0; /bin/sleep "$LASTS";'
    ' echo "error: no usable worker for 3600 s$HAD; continue with: it" >&2; exit 5',
}


USED = ["bash", "cat", "chmod", "cp", "date", "dirname", "grep", "mkdir", "paste", "pkill", "rm", "sed", "sort",
        "tee", "touch", "uniq"]  # fmt: skip


def driven(tmp_path, without=(), fakes=(), **env):
    """train.sbatch among programs that only say what they were called for: exit code, log, calls."""
    (tmp_path / "bin").mkdir()
    for name in USED:
        if (found := shutil.which(name)) is None:
            pytest.skip(f"there is no {name}")
        (tmp_path / "bin" / name).symlink_to(found)
    for name, text in (FAKES | dict(fakes)).items():
        if name not in without:
            (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / "bin" / name).chmod(0o755)
    given = {"PATH": str(tmp_path / "bin"), "RECIPE": str(RECIPES / "slurm"), "SLURM_JOB_ID": "7", "LASTS": "0",
             "HAD": "", "SLURMD_NODENAME": "here", "SLURM_JOB_PARTITION": "debug", "LOSES": "1000", **env}  # fmt: skip
    done = subprocess.run(["bash", RECIPES / "slurm" / "train.sbatch", "job.yaml"], cwd=tmp_path, env=given, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)  # fmt: skip
    return done.returncode, done.stdout, (tmp_path / "calls").read_text().split("\n")


def test_a_driver_under_slurm_does_not_wait_for_ever_for_a_word_of_it(tmp_path):
    code, log, calls = driven(tmp_path, without=["squeue"])
    assert code == 5 and calls.count("bigclf") == 1 and "scancel 8" in calls
    assert "for 600 seconds SLURM has not said what became of the workers' jobs: unknown" in log
    assert "squeue: command not found" in log and "== ended with exit code 5" in log


def test_a_driver_under_slurm_tries_once_more_and_again_after_it_had_workers_for_long(tmp_path):
    code, log, calls = driven(tmp_path)
    assert code == 5 and calls.count("bigclf") == 2 and log.count("the driver tries once more") == 1
    (tmp_path / "long").mkdir()
    from bigclf.cluster.book import GiveUp
    from bigclf.cluster.engine import DaskEngine

    lost = SimpleNamespace(_served=4000.0, _book=None, _members={})  # an engine that had workers in earlier rounds
    said = str(DaskEngine._reason(lost, GiveUp("no usable worker for 3600 s", None)))
    code, log, calls = driven(tmp_path / "long", LOSES="4", HAD=said.removeprefix("no usable worker for 3600 s"))
    assert code == 0 and calls.count("bigclf") == 4 and log.count("the driver tries once more") == 3
    assert log.count("error: no usable worker for 3600 s") == 3  # the log has what the driver said


def test_a_driver_under_slurm_does_not_count_what_it_waited_in_vain(tmp_path):
    for name, had in (("never", ""), ("short", ", after 20 s with one")):
        (tmp_path / name).mkdir()
        code, _, calls = driven(tmp_path / name, LOSES="4", LASTS="1.1", STEADY="21" if had else "1", HAD=had)
        assert code == 5 and calls.count("bigclf") == 2


def test_each_wait_of_a_driver_under_slurm_for_a_word_of_it_begins_anew(tmp_path):
    """Silent twice for 45 s, with a worker that runs between: never for the 60 s after which it gives up."""
    told = 'n=$(($(grep -c squeue calls) % 4)); echo squeue >> calls; [ "$n" = 3 ] && echo "RUNNING (None)" || exit 1'
    code, _, calls = driven(tmp_path, fakes={"squeue": told}, LOSES="3", SILENCE="60")
    assert code == 0 and calls.count("bigclf") == 3
