//! Checks of RDMA over Converged Ethernet: addresses, lossless classes, congestion.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FAST, FixClass, Severity},
    scene::field_of,
};

/// Counters of packets that were lost or came twice.
const LOSSES: [&str; 6] = [
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "duplicate_request",
    "np_cnp_sent",
];

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "NET01",
        name: "MTU below RoCE",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: FAST,
        why: "RoCE takes the largest of 256, 512, 1024, 2048 and 4096 octets that fits: on a \
              network of 1500 that is 1024, four times as many packets. All devices of the path \
              have to carry the larger frames.",
        source: "/sys/class/net/*/mtu; RoCE adds up to 70 octets to 4096, vendors ask for 4200",
        judge: mtu,
    },
    HostCheck {
        id: "NET03",
        name: "RoCE version 2 address",
        severity: Severity::Fail,
        class: FixClass::Operator,
        profiles: ALL,
        why: "Connections over routed networks take a GID of RoCE version 2 that is made of an IP \
              address. Without one they use version 1 or a link-local address, and end in \
              'transport retry counter exceeded'.",
        source: "ports/*/gid_attrs/types, ports/*/gids; kernel sysfs-class-infiniband; UCX issue \
                 2434",
        judge: addresses,
    },
    HostCheck {
        id: "NET04",
        name: "traffic class of RoCE",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: FAST,
        why: "Switches protect one class of traffic from loss, by its DSCP. Class 0 shares the \
              queue of everything else. The class is the fabric's choice; 106 (DSCP 26, ECN) is \
              usual.",
        source: "configfs rdma_cm/*/ports/*/default_roce_tos; cma_roce_tos(8)",
        judge: traffic_class,
    },
    HostCheck {
        id: "NET05",
        name: "priority flow control",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: FAST,
        why: "RoCE loses its speed with the first packet that is dropped. Pauses for exactly its \
              priority (3 is usual) avoid that; pauses for all priorities stop everybody.",
        source: "dcb pfc show; dcb-pfc(8)",
        judge: flow_control,
    },
    HostCheck {
        id: "NET06",
        name: "congestion notification",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: FAST,
        why: "Without ECN the only brake is a pause, which spreads through the fabric.",
        source: "/sys/class/net/*/ecn/roce_{np,rp}/enable/3 (mlx5, drivers of the vendor only)",
        judge: congestion,
    },
    HostCheck {
        id: "NET07",
        name: "losses of RDMA",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "Each packet that was lost or came twice is a retransmission of milliseconds; which \
              counter moves says on which side.",
        source: "ports/*/hw_counters twice, a second apart; kernel sysfs-class-infiniband",
        judge: losses,
    },
    HostCheck {
        id: "NET08",
        name: "pauses of the whole link",
        severity: Severity::Info,
        class: FixClass::Operator,
        profiles: FAST,
        why: "Beside pauses of one priority those of the whole link do nothing good: they stop \
              the traffic that was to go on.",
        source: "ethtool -a, dcb pfc show; ethtool(8)",
        judge: link_pause,
    },
];

fn mtu(scene: &Scene) -> Judged {
    let mut least: Option<(i64, String)> = None;
    for device in scene.roce_net_devices()? {
        let mtu = scene.host.number(&format!("/sys/class/net/{device}/mtu"))?;
        if least.as_ref().is_none_or(|(lowest, _)| mtu < *lowest) {
            least = Some((mtu, device));
        }
    }
    let (mtu, device) = least.ok_or_else(|| Finding::not_applicable("no RoCE device"))?;
    Ok(Finding::judge(mtu >= 4200, format!("{device}: {mtu}"), "4200 or more")
        .fix(format!("ip link set {device} mtu 9000, on the whole path")))
}

fn addresses(scene: &Scene) -> Judged {
    let mut missing = None;
    let mut found = 0;
    for (device, port) in scene.roce_ports()? {
        let is_usable = |index: &String| {
            let read = |at: String| scene.host.text(&at).unwrap_or_default();
            let gid = read(format!("{port}/gids/{index}"));
            let is_local = gid.starts_with("fe80:");
            let is_empty = gid.chars().all(|c| c == '0' || c == ':');
            read(format!("{port}/gid_attrs/types/{index}")) == "RoCE v2" && !is_local && !is_empty
        };
        let indexes = scene.host.names(&format!("{port}/gid_attrs/types"));
        match indexes.iter().filter(|index| is_usable(index)).count() {
            0 => missing = Some(device),
            count => found += count,
        }
    }
    let measured = match &missing {
        Some(device) => format!("{device}: none"),
        None => format!("{found} addresses"),
    };
    let device = missing.as_deref().unwrap_or_default();
    let net = scene.net_devices_of(device).into_iter().next().unwrap_or_else(|| "DEV".into());
    Ok(Finding::judge(missing.is_none(), measured, "1 or more, made of an IP address")
        .fix(format!("ip address add ADDRESS/24 dev {net}; cma_roce_mode -d {device} -p 1 -m 2")))
}

fn traffic_class(scene: &Scene) -> Judged {
    let (device, _) = scene
        .roce_ports()?
        .into_iter()
        .next()
        .ok_or_else(|| Finding::not_applicable("no RoCE device"))?;
    let path = format!("/sys/kernel/config/rdma_cm/{device}/ports/1/default_roce_tos");
    let class = scene.host.number(&path)?;
    Ok(Finding::judge(class != 0, format!("{device}: {class}"), "the fabric's lossless class")
        .fix(format!("cma_roce_tos -d {device} -t 106")))
}

/// Priorities for which `dcb pfc show` of `device` says on.
fn paused(scene: &Scene, device: &str) -> Result<Vec<String>, Finding> {
    let text = scene.host.output(&["dcb", "pfc", "show", "dev", device])?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("prio-pfc"));
    let line = line.ok_or_else(|| Finding::not_applicable(format!("{device} has no PFC")))?;
    let pairs = line.split_whitespace().filter_map(|word| word.split_once(':'));
    Ok(pairs.filter(|(_, state)| *state == "on").map(|(prio, _)| prio.to_owned()).collect())
}

fn flow_control(scene: &Scene) -> Judged {
    let device = first(scene.roce_net_devices()?);
    let on = paused(scene, &device)?;
    let shown = if on.is_empty() { "none".to_owned() } else { on.join(", ") };
    Ok(Finding::judge(on.len() == 1, format!("{device}: {shown}"), "on for the one of RoCE")
        .fix(format!("dcb pfc set dev {device} prio-pfc all:off 3:on, as the switches have it")))
}

fn congestion(scene: &Scene) -> Judged {
    let device = first(scene.roce_net_devices()?);
    let at = format!("/sys/class/net/{device}/ecn");
    let (notify, react) = (format!("{at}/roce_np/enable/3"), format!("{at}/roce_rp/enable/3"));
    let values = (scene.host.number(&notify)?, scene.host.number(&react)?);
    let measured = format!("{device}: notify {}, react {}", values.0, values.1);
    Ok(Finding::judge(values == (1, 1), measured, "1, 1")
        .fix(format!("echo 1 > {notify}; echo 1 > {react}")))
}

/// Files of the counters of losses.
pub(super) fn counters(scene: &Scene) -> Vec<String> {
    let ports = scene.rdma_ports().unwrap_or_default();
    let files = ports
        .iter()
        .flat_map(|(_, port)| LOSSES.iter().map(move |name| format!("{port}/hw_counters/{name}")));
    files.filter(|path| scene.host.exists(path)).collect()
}

fn losses(scene: &Scene) -> Judged {
    scene.rdma_devices()?;
    let mut moved = Vec::new();
    let mut seen = 0;
    for path in counters(scene) {
        let before = scene.host.earlier(&path).and_then(|text| text.parse::<i64>().ok());
        let Some(before) = before else { continue };
        let count = scene.host.number(&path)?.saturating_sub(before);
        seen += 1;
        if count > 0 {
            let name = path.rsplit('/').next().unwrap_or_default();
            moved.push(format!("{name} +{count}"));
        }
    }
    if seen == 0 {
        return Err(Finding::not_applicable("the device shows no such counters"));
    }
    let shown = if moved.is_empty() { format!("{seen} still") } else { moved.join(", ") };
    Ok(Finding::judge(moved.is_empty(), shown, "none moves within a second")
        .fix("the fabric: NET04, NET05 and NET06 on both hosts and on the switches"))
}

fn link_pause(scene: &Scene) -> Judged {
    let device = first(scene.roce_net_devices()?);
    if paused(scene, &device)?.is_empty() {
        return Err(Finding::not_applicable("no priority has flow control of its own"));
    }
    let text = scene.host.output(&["ethtool", "-a", &device])?;
    let is_on = |name: &str| field_of(&text, name).is_some_and(|value| value == "on");
    let (rx, tx) = (is_on("RX"), is_on("TX"));
    let word = |on| if on { "on" } else { "off" };
    let measured = format!("{device}: rx {}, tx {}", word(rx), word(tx));
    Ok(Finding::judge(!rx && !tx, measured, "off")
        .fix(format!("ethtool -A {device} rx off tx off")))
}

fn first(devices: Vec<String>) -> String {
    devices.into_iter().next().unwrap_or_default()
}
