"""The recipe of Spack: the command and its manual pages, built by Cargo."""

from spack.package import *


class Stag(Package):
    """NFS and ONC RPC over RDMA from user space: a gateway, a client, a load generator, checks of a host."""

    # No release is published yet: the checkout that this repository lies in is what is built.
    homepage = "file://" + ancestor(__file__, 6)
    git = "file://" + ancestor(__file__, 6)

    license("MIT OR Apache-2.0")

    version("main", branch="main")

    # Loads the libraries of the host where a device is used; nothing of them is needed to build.
    variant("verbs", default=True, description="RDMA devices, by libibverbs and librdmacm")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")

    def install(self, spec, prefix):
        arguments = ["install", "--locked", "--path", "apps/stag", "--root", prefix]
        if spec.satisfies("~verbs"):
            arguments += ["--no-default-features"]
        which("cargo", required=True)(*arguments)
        stag = Executable(prefix.bin.stag)
        mkdirp(prefix.share.man.man1)
        stag("man", prefix.share.man.man1)
        mkdirp(join_path(prefix.share, "bash-completion", "completions"))
        with open(join_path(prefix.share, "bash-completion", "completions", "stag"), "w") as file:
            stag("completions", "bash", output=file)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_that_it_works(self):
        Executable(self.prefix.bin.stag)("demo")
