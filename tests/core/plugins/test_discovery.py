"""What is found, when, at what cost, and in which words a miss is answered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tensorbus.errors import PluginError
from tensorbus.plugins.api_version import satisfies
from tensorbus.plugins.discovery import manifest_path, metadata_of, normalized, scan
from tensorbus.plugins.manifest import Manifest

from throwaway import EXTENSION, Site


def test_only_the_device_that_is_asked_for_is_imported(site: Site) -> None:
    for name in ("alpha", "beta", "gamma"):
        site.install(name)
    site.run(
        """
        check("pluggy" not in sys.modules and "importlib.metadata" not in sys.modules)
        check(plugins.known_types() == ["alpha", "beta", "gamma"] and not log)
        check({s.state for s in plugins.status()} == {"discovered"} and not log)
        beta = plugins.backend("beta")
        check(log == [("import", "tb_beta.extension"), ("device", "beta")], log)
        check(beta.state == "ready" and beta.import_seconds > 0 and beta.device_count == 1)
        check((beta.type, beta.dist, beta.version) == ("beta", "tb-beta", "1.0"))
        check(plugins.backend("beta") is beta and len(log) == 2)
        check(not any(name.startswith(("tb_alpha", "tb_gamma")) for name in sys.modules))
        # Three third-party devices at once.
        check([str(d) for d in devices()] == ["alpha:0", "beta:0", "gamma:0"])
        check(len({id(plugins.backend(name).runtime) for name in ("alpha", "beta", "gamma")}) == 3)
        check(Device("gamma").properties.name == "tb_gamma.runtime")
        """
    )


def test_a_working_folder_that_is_gone_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in `python -c`
    gone.rmdir()
    assert scan()


def test_an_unknown_name(site: Site) -> None:
    site.install("opencl")
    site.install("good")
    info = site.folder / "tensorbus-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Name: tensorbus\nProvides-Extra: metal\nProvides-Extra: cuda12\n"
        'Requires-Dist: tensorbus-metal>=0.1; extra == "metal"\n'
        'Requires-Dist: tensorbus-cuda[cuda12]>=0.1; extra == "cuda12"\n\nText about tensorbus-npu; extra\n'
    )
    site.run(
        """
        def message(name):
            error = error_of(device, name)
            check(type(error) is DeviceUnavailableError)
            return str(error)
        text = message("opencll:1")
        check("'opencll'" in text and "good, opencl" in text and "Did you mean 'opencl'?" in text, text)
        check("pip install 'tensorbus[metal]'" in message("metal"))
        check("pip install 'tensorbus[cuda12]'" in message("cuda"))
        check("pip install tensorbus-npu" in message("npu"), message("npu"))
        check("of the form 'type' or 'type:index'" in str(error_of(device, "good:one")))
        for wrong in ("", ":", "good:-1", "good:1:2", 3, b"good", ("good", 0)):
            check(type(error_of(device, wrong)) is DeviceError, wrong)
        for wrong in (("a:b",), ("good", -1), ("good", True), ("", 0), (None, 0)):
            check(type(error_of(Device, *wrong)) is DeviceError, wrong)
        text = str(error_of(device, "good:7"))
        check("no device 'good:7'" in text and "tb-good 1.0 found 1" in text, text)
        """
    )


def test_switches(site: Site) -> None:
    site.install("alpha")
    site.install("beta", dist="Beta_Dist")
    blocked = """
        check(plugins.known_types() == ["alpha"])
        error = error_of(device, "beta")
        check(type(error) is DeviceUnavailableError and "Beta-Dist 1.0 is installed" in str(error), error)
        check({!r} in str(error), error)
        check(device("alpha").is_available() and devices() == [Device("alpha")])
        check({{s.name: s.state for s in plugins.status()}} == {{"alpha": "ready", "beta": "blocked"}})
        check("Beta_Dist" not in sys.modules)
        """
    site.run(blocked.format("TENSORBUS_BLOCK='beta' blocks it"), TENSORBUS_BLOCK="beta")
    site.run(blocked.format("TENSORBUS_BLOCK='beta-dist' blocks it"), TENSORBUS_BLOCK="beta-dist")
    site.run(blocked.format("TENSORBUS_PLUGINS='alpha' does not name it"), TENSORBUS_PLUGINS="alpha")
    site.run(blocked.format("TENSORBUS_PLUGINS='tb_alpha'"), TENSORBUS_PLUGINS="tb_alpha")
    site.run(
        """
        check(plugins.known_types() == [] and plugins.status() == [])
        error = error_of(device, "alpha")
        check("TENSORBUS_AUTOLOAD=0" in str(error), error)
        plugins.register("alpha", "tb_alpha.extension")
        check(device("alpha").is_available())
        """,
        TENSORBUS_AUTOLOAD="0",
    )


def test_an_error_names_the_switch_that_hides_what_is_installed(site: Site) -> None:
    site.install("alpha", device="host = true")
    script = """
        for found in (error_of(get_default_device), error_of(device, "beta")):
            check(type(found) is DeviceUnavailableError and {!r} in str(found), found)
        """
    site.run(script.format("TENSORBUS_AUTOLOAD=0"), TENSORBUS_AUTOLOAD="0")
    site.run(script.format("TENSORBUS_PLUGINS='alphaa' does not name it"), TENSORBUS_PLUGINS="alphaa")
    site.run(script.format("TENSORBUS_BLOCK='alpha' blocks it"), TENSORBUS_BLOCK="alpha")


def test_without_the_metapackage_nothing_is_said_of_its_devices(site: Site) -> None:
    site.install("alpha")
    site.run(
        """
        found = str(error_of(device, "beta"))
        check("`pip install tensorbus-beta`" in found and "itself has no such" not in found, found)
        """
    )


def test_a_name_in_other_letters_is_no_reason_to_install_anything(site: Site) -> None:
    site.install("alpha")
    site.run(
        """
        found = str(error_of(device, "ALPHA"))
        check("Did you mean 'alpha'?" in found and "pip install" not in found, found)
        check("Did you mean" not in str(error_of(device, "nope")))
        """
    )


def test_variables_that_make_no_sense_are_warned_of_once(site: Site) -> None:
    site.run(
        """
        from tensorbus.system import env
        reads = {
            "TENSORBUS_AUTOLOAD": ("maybe", env.autoload, True),
            "TENSORBUS_VERIFY": ("abc", env.verifying, False),
            "TENSORBUS_LOG": ("foo", env.logged, frozenset()),
            "TENSORBUS_PROBE_TIMEOUT": ("soon", env.probe_timeout, 20.0),
        }
        reads = [(name, *read) for name, read in reads.items()]
        for text in ("99999999999999999999", "0", "-1", "a", "1.5"):
            reads.append(("TENSORBUS_NUM_THREADS", text, env.threads, None))
        for name, text, read, default in reads:
            os.environ[name] = text
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                check(read() == read() == default, name)
            check(len(told) == 1 and f"{name}={text!r}" in str(told[0].message), name, told)
        os.environ |= {"TENSORBUS_NUM_THREADS": "3", "TENSORBUS_AUTOLOAD": "off", "TENSORBUS_VERIFY": "1"}
        check(env.threads() == 3 and not env.autoload() and env.verifying())
        """
    )


def test_a_package_installed_after_the_first_use_is_found(site: Site, tmp_path: Path) -> None:
    site.install("alpha")
    site.install("later", folder=tmp_path / "elsewhere")
    site.run(
        f"""
        check(device("alpha").is_available())
        check(type(error_of(device, "later")) is DeviceUnavailableError)
        sys.path.append({str(tmp_path / "elsewhere")!r})
        check(device("later").is_available())
        check(plugins.known_types() == ["alpha", "later"])

        site = {str(site.folder)!r}
        os.utime(site, (1, 1))
        check(type(error_of(device, "beta")) is DeviceUnavailableError)
        os.makedirs(site + "/tb_beta")
        for name in ("extension.py", "runtime.py", "__init__.py"):
            open(site + "/tb_beta/" + name, "w").write(open(site + "/tb_alpha/" + name).read())
        text = open(site + "/tb_alpha/manifest.toml").read().replace("alpha", "beta")
        open(site + "/tb_beta/manifest.toml", "w").write(text)
        os.makedirs(site + "/tb_beta-1.0.dist-info")
        check(type(error_of(device, "beta")) is DeviceUnavailableError)
        text = "[tensorbus.devices]\\nbeta = tb_beta.extension\\n"
        open(site + "/tb_beta-1.0.dist-info/entry_points.txt", "w").write(text)
        check(device("beta").is_available())
        """
    )


def test_editable_installs_shadowed_copies_and_rubbish_on_the_path(site: Site, tmp_path: Path) -> None:
    """The package of an editable install lies elsewhere; only its dist-info lies in the site folder."""
    package = site.install("npu")
    source = tmp_path / "source"
    source.mkdir()
    (site.folder / package).rename(source / package)
    site.install("npu", folder=tmp_path / "second", version="0.5", extension="1 / 0")
    (site.folder / "broken-1.0.dist-info").write_text("a file, not a folder")
    (site.folder / "~b_npu-1.0.dist-info").mkdir()
    (tmp_path / "archive.zip").write_bytes(b"PK")
    site.install("pathless", package="pathless_tb")
    (site.folder / "pathless_tb" / "manifest.toml").unlink()
    site.run(
        f"""
        more = [{str(source)!r}, {str(tmp_path / "second")!r}]
        sys.path += [*more, {str(tmp_path / "archive.zip")!r}, "/no/such", ""]
        check(device("npu").is_available())
        check(plugins.backend("npu").version == "1.0")
        error = error_of(device, "pathless")
        check(type(error) is PluginError and "has no manifest.toml" in str(error), error)
        """
    )


@pytest.mark.parametrize("module", ["own", "own.extension", "own.deep.extension"])
def test_a_manifest_lies_in_the_package_or_one_above(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r"own has no manifest\.toml: it must lie in the package 'own'"):
        manifest_path(module, "own")
    (tmp_path / "own" / "manifest.toml").touch()
    assert manifest_path(module, "own") == str(tmp_path / "own" / "manifest.toml")


def test_egg_info_and_attributes(site: Site) -> None:
    package = site.install(
        "npu", extension=EXTENSION + "\nclass holder:\n    import tb_npu.extension as hooks\n"
    )
    info = site.folder / f"{package}-1.0.dist-info"
    (info / "entry_points.txt").write_text(
        f"# ours\n[other]\nnpu = x\n\n[tensorbus.devices]\nnpu={package}.extension:holder.hooks [extra]\n"
    )
    (info / "PKG-INFO").write_text("Name: tb-npu\nVersion: 3.2\n")
    info.rename(site.folder / f"{package}.egg-info")
    site.run("check(device('npu').is_available()); check(plugins.backend('npu').version == '3.2')")


def test_scan_agrees_with_importlib_metadata() -> None:
    from importlib.metadata import entry_points

    expected = {
        (e.name, e.value, e.group, normalized(e.dist.name), e.dist.version)
        for group in (
            "tensorbus.devices",
            "tensorbus.plugins",
            "tensorbus.communicators",
            "tensorbus.stores",
            "tensorbus.launchers",
        )
        for e in entry_points(group=group)
        if e.dist is not None
    }
    names = {(e.name, e.value, e.group, normalized(e.dist), e.version) for e in scan().entry_points}
    assert names == expected
    assert "Name: pytest" in metadata_of("pytest")


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (">=0.1,<1", True),
        (">=0.1.0", True),
        ("==0.1.0", True),
        ("~=0.1", True),
        ("~=0.1.1", False),
        ("~=0.0", True),
        (">0.1", False),
        ("<=0.1, !=0.1", False),
        (">=0.2", False),
        ("<0.10", True),
    ],
)
def test_api_ranges(wanted: str, holds: bool) -> None:
    assert satisfies("0.1", wanted) is holds


@pytest.mark.parametrize("wanted", ["", "0.1", ">=", ">=0.1,", "~=1", ">=1.x", "=>1", "<1,two"])
def test_malformed_api_ranges(wanted: str) -> None:
    with pytest.raises(ValueError, match=r"is not a|needs at least"):
        satisfies("0.1", wanted)


def test_manifest_reads_every_key() -> None:
    manifest = Manifest.parse(
        """
        [plugin]
        name = "npu"
        api = ">=0.1,<1"
        description = "An NPU"
        examined = true
        [device]
        type = "npu"
        host = true
        fork_safe = false
        dlpack_type = 12
        dtypes = ["float32", "int8"]
        optional = ["int8"]
        requires = "a card"
        install = "pip install x"
        [kernels]
        for = ["gpu"]
        [gaps]
        eig = "no library for it"
        [ops]
        host = ["cholesky"]
        add = "all"
        mul = ["float32"]
        [ops.erf]
        dtypes = ["float32"]
        """,
        "tb-npu 1.0",
    )
    assert manifest == Manifest(
        name="npu",
        api=">=0.1,<1",
        description="An NPU",
        examined=True,
        type="npu",
        host=True,
        fork_safe=False,
        dlpack_type=12,
        dtypes=("float32", "int8"),
        optional=("int8",),
        requires="a card",
        install="pip install x",
        kernels_for=("gpu",),
        ops={"add": "all", "mul": ("float32",), "erf": ("float32",)},
        host_ops=("cholesky",),
        gaps={"eig": "no library for it"},
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plugin = 3", "must be a table"),
        ("plugin = {name = 'x', api = '>=0.1', examined = 'yes'}", "true or false"),
        ("", "`name = ...` in its \\[plugin\\] table"),
        ("[device]\ntype = 'a:b'", "letters, digits"),
        ("[device]\ntype = 'a'\ndlpack_type = true", "an integer"),
        ("[device]\ntype = 'a'\ndtypes = ['float23']", "Did you mean 'float32'"),
        ("[kernels]\nfor = 'npu'", "a list of strings"),
        ("[kernels]\nfor = [1]", "a list of strings"),
        ("[kernel]\nfor = ['npu']", "Did you mean 'kernels'"),
        ("[ops]\nadd = 3", "a list of dtypes or"),
        ("[ops]\nhost = 'add'", "a list of strings"),
        ("[gaps]\nadd = ''", "a string that says why"),
        ("[device]\ntype = 'a'\noptional = ['int8']", "dtypes lacks"),
    ],
)
def test_malformed_manifests(text: str, words: str) -> None:
    head = '[plugin]\nname = "x"\napi = ">=0.1"\n' if text.startswith("[") else ""
    with pytest.raises(PluginError, match=words) as caught:
        Manifest.parse(head + text, "tb-x 1.0", "somewhere/manifest.toml")
    assert "tb-x 1.0" in str(caught.value)
    assert "somewhere/manifest.toml" in str(caught.value)
